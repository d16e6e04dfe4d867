"""Places and how one gets there: cities, what is in a town, and what goes there, in English, Chinese and German."""

from dataclasses import dataclass
from functools import cached_property

from tools.phrasebook.wording import (
    GERMAN_THE,
    Gender,
    Words,
)

HERE = Words("here", "这里", "hier")
CITIES = (
    Words("Berlin", "柏林", "Berlin"),
    Words("Hamburg", "汉堡", "Hamburg"),
    Words("Munich", "慕尼黑", "München"),
    Words("Cologne", "科隆", "Köln"),
    Words("Vienna", "维也纳", "Wien"),
    Words("Zurich", "苏黎世", "Zürich"),
    Words("London", "伦敦", "London"),
    Words("Paris", "巴黎", "Paris"),
    Words("Rome", "罗马", "Rom"),
    Words("Moscow", "莫斯科", "Moskau"),
    Words("Beijing", "北京", "Peking"),
    Words("Shanghai", "上海", "Shanghai"),
    Words("Nanjing", "南京", "Nanjing"),
    Words("Tokyo", "东京", "Tokio"),
    Words("New York", "纽约", "New York"),
)
EUROPEAN_CITIES = CITIES[:9]


@dataclass(frozen=True, eq=False)
class Place:
    en: str
    zh: str
    de: str
    gender: Gender

    def __str__(self) -> str:
        return self.en

    @cached_property
    def the_de(self) -> str:
        return f"{GERMAN_THE['nom'][self.gender]} {self.de}"

    def de_after(self, preposition: str) -> str:
        """The place in the dative after a preposition, joined as German does: zum, zur, vom, im."""
        joined = {"zu dem": "zum", "zu der": "zur", "von dem": "vom", "in dem": "im"}
        start = f"{preposition} {GERMAN_THE['dat'][self.gender]}"
        for apart, together in joined.items():
            if start == apart or start.endswith(f" {apart}"):
                start = start.removesuffix(apart) + together
        return f"{start} {self.de}"


PLACES = (
    Place("train station", "火车站", "Bahnhof", "m"),
    Place("airport", "机场", "Flughafen", "m"),
    Place("bank", "银行", "Bank", "f"),
    Place("post office", "邮局", "Post", "f"),
    Place("hospital", "医院", "Krankenhaus", "n"),
    Place("pharmacy", "药店", "Apotheke", "f"),
    Place("supermarket", "超市", "Supermarkt", "m"),
    Place("bakery", "面包店", "Bäckerei", "f"),
    Place("bookshop", "书店", "Buchhandlung", "f"),
    Place("market", "市场", "Markt", "m"),
    Place("school", "学校", "Schule", "f"),
    Place("university", "大学", "Universität", "f"),
    Place("library", "图书馆", "Bibliothek", "f"),
    Place("museum", "博物馆", "Museum", "n"),
    Place("theatre", "剧院", "Theater", "n"),
    Place("cinema", "电影院", "Kino", "n"),
    Place("church", "教堂", "Kirche", "f"),
    Place("park", "公园", "Park", "m"),
    Place("zoo", "动物园", "Zoo", "m"),
    Place("swimming pool", "游泳池", "Schwimmbad", "n"),
    Place("hotel", "酒店", "Hotel", "n"),
    Place("restaurant", "餐厅", "Restaurant", "n"),
    Place("café", "咖啡馆", "Café", "n"),
)


@dataclass(frozen=True, eq=False)
class Vehicle:
    """A way to get from city to city; one flies in a German plane and drives in a German train."""

    en: str
    zh: str
    de: str
    de_forms: str = "fahre fährst fährt fahren gefahren"

    def __str__(self) -> str:
        return self.en


LONG_DISTANCE = (
    Vehicle("by train", "坐火车", "mit dem Zug"),
    Vehicle("by plane", "坐飞机", "mit dem Flugzeug", "fliege fliegst fliegt fliegen geflogen"),
    Vehicle("by bus", "坐大巴", "mit dem Bus"),
    Vehicle("by car", "开车", "mit dem Auto"),
)
IN_TOWN = (
    Vehicle("on foot", "走路", "zu Fuß"),
    Vehicle("by taxi", "坐出租车", "mit dem Taxi"),
    Vehicle("by underground", "坐地铁", "mit der U-Bahn"),
    Vehicle("by tram", "坐有轨电车", "mit der Straßenbahn"),
    Vehicle("by bicycle", "骑自行车", "mit dem Fahrrad"),
)
