"""Things and food: how each is called, counted, worn and eaten in English, Chinese and German."""

from dataclasses import dataclass
from typing import Literal

from tools.phrasebook.persons import YOU, I, Someone
from tools.phrasebook.wording import (
    ADJECTIVE_AFTER_EIN,
    GERMAN_EIN,
    Case,
    Gender,
    Words,
    a,
    de_number,
    en_number,
    words,
    zh_count,
)

# ---------------------------------------------------------------------------------------------------------------------
# Things, with classifier, gender and plural


@dataclass(frozen=True, eq=False)
class Thing:
    en: str
    en_plural: str
    zh: str
    classifier: str
    de: str
    de_plural: str
    gender: Gender

    def __str__(self) -> str:
        return self.en


CLOTHES = (
    Thing("jacket", "jackets", "夹克", "件", "Jacke", "Jacken", "f"),
    Thing("shirt", "shirts", "衬衫", "件", "Hemd", "Hemden", "n"),
    Thing("coat", "coats", "大衣", "件", "Mantel", "Mäntel", "m"),
    Thing("sweater", "sweaters", "毛衣", "件", "Pullover", "Pullover", "m"),
    Thing("dress", "dresses", "连衣裙", "条", "Kleid", "Kleider", "n"),
    Thing("skirt", "skirts", "裙子", "条", "Rock", "Röcke", "m"),
    Thing("scarf", "scarves", "围巾", "条", "Schal", "Schals", "m"),
    Thing("hat", "hats", "帽子", "顶", "Hut", "Hüte", "m"),
    Thing("bag", "bags", "包", "个", "Tasche", "Taschen", "f"),
    Thing("umbrella", "umbrellas", "雨伞", "把", "Regenschirm", "Regenschirme", "m"),
)
FURNITURE = (
    Thing("table", "tables", "桌子", "张", "Tisch", "Tische", "m"),
    Thing("bed", "beds", "床", "张", "Bett", "Betten", "n"),
    Thing("chair", "chairs", "椅子", "把", "Stuhl", "Stühle", "m"),
    Thing("lamp", "lamps", "台灯", "盏", "Lampe", "Lampen", "f"),
    Thing("sofa", "sofas", "沙发", "张", "Sofa", "Sofas", "n"),
)
VEHICLES = (
    Thing("bicycle", "bicycles", "自行车", "辆", "Fahrrad", "Fahrräder", "n"),
    Thing("car", "cars", "汽车", "辆", "Auto", "Autos", "n"),
)
DEVICES = (
    Thing("computer", "computers", "电脑", "台", "Computer", "Computer", "m"),
    Thing("camera", "cameras", "照相机", "台", "Kamera", "Kameras", "f"),
    Thing("mobile phone", "mobile phones", "手机", "部", "Handy", "Handys", "n"),
    Thing("watch", "watches", "手表", "块", "Armbanduhr", "Armbanduhren", "f"),
)
BOOKS = (
    Thing("book", "books", "书", "本", "Buch", "Bücher", "n"),
    Thing("dictionary", "dictionaries", "词典", "本", "Wörterbuch", "Wörterbücher", "n"),
    Thing("newspaper", "newspapers", "报纸", "份", "Zeitung", "Zeitungen", "f"),
    Thing("map", "maps", "地图", "张", "Landkarte", "Landkarten", "f"),
    Thing("pencil", "pencils", "铅笔", "支", "Bleistift", "Bleistifte", "m"),
)
SMALL_THINGS = (
    Thing("key", "keys", "钥匙", "把", "Schlüssel", "Schlüssel", "m"),
    Thing("knife", "knives", "刀", "把", "Messer", "Messer", "n"),
    Thing("cup", "cups", "杯子", "个", "Tasse", "Tassen", "f"),
    Thing("plate", "plates", "盘子", "个", "Teller", "Teller", "m"),
    Thing("ball", "balls", "球", "个", "Ball", "Bälle", "m"),
    Thing("suitcase", "suitcases", "箱子", "个", "Koffer", "Koffer", "m"),
)
FRUIT = (
    Thing("apple", "apples", "苹果", "个", "Apfel", "Äpfel", "m"),
    Thing("orange", "oranges", "橙子", "个", "Orange", "Orangen", "f"),
    Thing("banana", "bananas", "香蕉", "根", "Banane", "Bananen", "f"),
    Thing("pear", "pears", "梨", "个", "Birne", "Birnen", "f"),
    Thing("egg", "eggs", "鸡蛋", "个", "Ei", "Eier", "n"),
    Thing("tomato", "tomatoes", "西红柿", "个", "Tomate", "Tomaten", "f"),
    Thing("potato", "potatoes", "土豆", "个", "Kartoffel", "Kartoffeln", "f"),
)
ANIMALS = (
    Thing("cat", "cats", "猫", "只", "Katze", "Katzen", "f"),
    Thing("dog", "dogs", "狗", "条", "Hund", "Hunde", "m"),
    Thing("bird", "birds", "鸟", "只", "Vogel", "Vögel", "m"),
    Thing("rabbit", "rabbits", "兔子", "只", "Kaninchen", "Kaninchen", "n"),
    Thing("horse", "horses", "马", "匹", "Pferd", "Pferde", "n"),
)
KIN = (
    Thing("older brother", "older brothers", "哥哥", "个", "älter Bruder", "ältere Brüder", "m"),
    Thing("younger brother", "younger brothers", "弟弟", "个", "jünger Bruder", "jüngere Brüder", "m"),
    Thing("older sister", "older sisters", "姐姐", "个", "älter Schwester", "ältere Schwestern", "f"),
    Thing("younger sister", "younger sisters", "妹妹", "个", "jünger Schwester", "jüngere Schwestern", "f"),
    Thing("son", "sons", "儿子", "个", "Sohn", "Söhne", "m"),
    Thing("daughter", "daughters", "女儿", "个", "Tochter", "Töchter", "f"),
)
GOODS = (*CLOTHES, *FURNITURE, *VEHICLES, *DEVICES, *BOOKS)
BELONGINGS = (
    Thing("passport", "passports", "护照", "本", "Pass", "Pässe", "m"),
    Thing("wallet", "wallets", "钱包", "个", "Geldbeutel", "Geldbeutel", "m"),
    Thing("ticket", "tickets", "车票", "张", "Fahrkarte", "Fahrkarten", "f"),
    *(thing for thing in (*CLOTHES, *DEVICES, *BOOKS, *SMALL_THINGS) if thing.en not in ("knife", "cup", "plate")),
)


def wears(someone: Someone, thing: Thing) -> bool:
    return thing.en not in ("skirt", "dress") or someone.gender == "f" or someone in (I, YOU)


def some(count: int, thing: Thing, case: Case) -> Words:
    """ "a book", 一本书, "ein Buch"; "two books", 两本书, "zwei Bücher"."""
    zh = f"{zh_count(count)}{thing.classifier}{thing.zh}"
    if count > 1:
        return Words(f"{en_number(count)} {thing.en_plural}", zh, f"{de_number(count)} {thing.de_plural}")
    ein = f"ein{GERMAN_EIN[case][thing.gender]}"
    adjective, _, noun = thing.de.rpartition(" ")
    if adjective:
        adjective += ADJECTIVE_AFTER_EIN[case][thing.gender]
    return Words(a(thing.en), zh, words(ein, adjective, noun))


COLOURS = (
    Words("red", "红色", "rot"),
    Words("blue", "蓝色", "blau"),
    Words("green", "绿色", "grün"),
    Words("yellow", "黄色", "gelb"),
    Words("black", "黑色", "schwarz"),
    Words("white", "白色", "weiß"),
    Words("grey", "灰色", "grau"),
    Words("brown", "棕色", "braun"),
)
COLOURED = (*CLOTHES, *FURNITURE, *VEHICLES)


# ---------------------------------------------------------------------------------------------------------------------
# Food and drink


@dataclass(frozen=True, eq=False)
class Portion:
    """So much of something: "a cup of tea", 一杯茶, "eine Tasse Tee"."""

    en: str
    en_plural: str
    en_of: str
    classifier: str
    zh: str
    de: str
    de_plural: str
    gender: Gender
    de_of: str
    eaten: bool = False

    def __str__(self) -> str:
        return f"{self.en} of {self.en_of}"


def some_of(count: int, portion: Portion) -> Words:
    """A portion as an accusative object."""
    zh = f"{zh_count(count)}{portion.classifier}{portion.zh}"
    if count > 1:
        en, de = f"{en_number(count)} {portion.en_plural}", f"{de_number(count)} {portion.de_plural}"
    else:
        en, de = a(portion.en), f"ein{GERMAN_EIN['acc'][portion.gender]} {portion.de}"
    return Words(f"{en} of {portion.en_of}", zh, f"{de} {portion.de_of}")


def _cup(en: str, zh: str, de: str) -> Portion:
    return Portion("cup", "cups", en, "杯", zh, "Tasse", "Tassen", "f", de)


def _glass(en: str, zh: str, de: str) -> Portion:
    return Portion("glass", "glasses", en, "杯", zh, "Glas", "Gläser", "n", de)


def _bottle(en: str, zh: str, de: str) -> Portion:
    return Portion("bottle", "bottles", en, "瓶", zh, "Flasche", "Flaschen", "f", de)


PORTIONS = (
    _cup("tea", "茶", "Tee"),
    _cup("coffee", "咖啡", "Kaffee"),
    _cup("green tea", "绿茶", "grünen Tee"),
    _glass("water", "水", "Wasser"),
    _glass("milk", "牛奶", "Milch"),
    _glass("juice", "果汁", "Saft"),
    _glass("beer", "啤酒", "Bier"),
    _glass("wine", "葡萄酒", "Wein"),
    _bottle("water", "水", "Wasser"),
    _bottle("milk", "牛奶", "Milch"),
    _bottle("juice", "果汁", "Saft"),
    _bottle("beer", "啤酒", "Bier"),
    _bottle("wine", "葡萄酒", "Wein"),
    Portion("bowl", "bowls", "soup", "碗", "汤", "Schale", "Schalen", "f", "Suppe", eaten=True),
    Portion("bowl", "bowls", "rice", "碗", "米饭", "Schale", "Schalen", "f", "Reis", eaten=True),
    Portion("bowl", "bowls", "noodles", "碗", "面条", "Schale", "Schalen", "f", "Nudeln", eaten=True),
    Portion("piece", "pieces", "cake", "块", "蛋糕", "Stück", "Stück", "n", "Kuchen", eaten=True),
    Portion("piece", "pieces", "cheese", "块", "奶酪", "Stück", "Stück", "n", "Käse", eaten=True),
    Portion("piece", "pieces", "chocolate", "块", "巧克力", "Stück", "Stück", "n", "Schokolade", eaten=True),
    Portion("slice", "slices", "bread", "片", "面包", "Scheibe", "Scheiben", "f", "Brot", eaten=True),
    Portion("plate", "plates", "dumplings", "盘", "饺子", "Teller", "Teller", "m", "Teigtaschen", eaten=True),
    Portion("plate", "plates", "vegetables", "盘", "蔬菜", "Teller", "Teller", "m", "Gemüse", eaten=True),
)


@dataclass(frozen=True, eq=False)
class Food:
    """Something one likes or not; `zh_verb` says whether it is eaten or drunk, `kein` denies it in German."""

    en: str
    zh: str
    de: str
    kein: str
    zh_verb: str = "吃"
    gender: Gender | Literal["pl"] = "m"

    def __str__(self) -> str:
        return self.en


FOODS = (
    Food("fish", "鱼", "Fisch", "keinen", gender="m"),
    Food("meat", "肉", "Fleisch", "kein", gender="n"),
    Food("fruit", "水果", "Obst", "kein", gender="n"),
    Food("vegetables", "蔬菜", "Gemüse", "kein", gender="n"),
    Food("rice", "米饭", "Reis", "keinen", gender="m"),
    Food("noodles", "面条", "Nudeln", "keine", gender="pl"),
    Food("bread", "面包", "Brot", "kein", gender="n"),
    Food("cake", "蛋糕", "Kuchen", "keinen", gender="m"),
    Food("cheese", "奶酪", "Käse", "keinen", gender="m"),
    Food("chocolate", "巧克力", "Schokolade", "keine", gender="f"),
    Food("dumplings", "饺子", "Teigtaschen", "keine", gender="pl"),
    Food("eggs", "鸡蛋", "Eier", "keine", gender="pl"),
    Food("soup", "汤", "Suppe", "keine", "喝", gender="f"),
    Food("tea", "茶", "Tee", "keinen", "喝", gender="m"),
    Food("coffee", "咖啡", "Kaffee", "keinen", "喝", gender="m"),
    Food("milk", "牛奶", "Milch", "keine", "喝", gender="f"),
    Food("juice", "果汁", "Saft", "keinen", "喝", gender="m"),
    Food("beer", "啤酒", "Bier", "kein", "喝", gender="n"),
    Food("wine", "葡萄酒", "Wein", "keinen", "喝", gender="m"),
)
