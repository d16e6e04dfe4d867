"""Verbs and activities in English, Chinese and German. Irregular forms are written out, not derived, so that they can be read
and checked."""

from dataclasses import dataclass
from functools import cached_property

from tools.phrasebook.persons import CHILDREN, FRIENDS, Someone
from tools.phrasebook.wording import (
    words,
)


@dataclass(frozen=True, eq=False)
class Verb:
    """English "go goes went going"; German "gehe gehst geht gehen gegangen", `de_prefix` where it is separable."""

    en: str
    de: str
    de_prefix: str = ""
    with_sein: bool = False

    @cached_property
    def en_forms(self) -> list[str]:
        return self.en.split()

    @cached_property
    def de_forms(self) -> list[str]:
        return self.de.split()


GO = Verb("go goes went going", "gehe gehst geht gehen gegangen", with_sein=True)
DRIVE = Verb("drive drives drove driving", "fahre fährst fährt fahren gefahren", with_sein=True)
RIDE = Verb("ride rides rode riding", DRIVE.de, with_sein=True)
DRINK = Verb("drink drinks drank drinking", "trinke trinkst trinkt trinken getrunken")
EAT = Verb("eat eats ate eating", "esse isst isst essen gegessen")
WATCH_TV = Verb("watch watches watched watching", "sehe siehst sieht sehen ferngesehen", "fern")
WATCH = Verb("watch watches watched watching", "sehe siehst sieht sehen gesehen")
READ = Verb("read reads read reading", "lese liest liest lesen gelesen")
LISTEN = Verb("listen listens listened listening", "höre hörst hört hören gehört")
PLAY = Verb("play plays played playing", "spiele spielst spielt spielen gespielt")
LEARN = Verb("learn learns learned learning", "lerne lernst lernt lernen gelernt")
STUDY = Verb("study studies studied studying", LEARN.de)
WRITE = Verb("write writes wrote writing", "schreibe schreibst schreibt schreiben geschrieben")
MAKE = Verb("do does did doing", "mache machst macht machen gemacht")
TAKE = Verb("take takes took taking", MAKE.de)
CLEAN = Verb("clean cleans cleaned cleaning", "putze putzt putzt putzen geputzt")
COOK = Verb("cook cooks cooked cooking", "koche kochst kocht kochen gekocht")
BAKE = Verb("bake bakes baked baking", "backe backst backt backen gebacken")
WORK = Verb("work works worked working", "arbeite arbeitest arbeitet arbeiten gearbeitet")
DANCE = Verb("dance dances danced dancing", "tanze tanzt tanzt tanzen getanzt")
SING = Verb("sing sings sang singing", "singe singst singt singen gesungen")
JOG = Verb("jog jogs jogged jogging", "jogge joggst joggt joggen gejoggt", with_sein=True)
SURF = Verb("surf surfs surfed surfing", "surfe surfst surft surfen gesurft")
WASH = Verb("wash washes washed washing", "wasche wäschst wäscht waschen gewaschen")
DO_LAUNDRY = Verb(MAKE.en, WASH.de)
DO_DISHES = Verb(WASH.en, "spüle spülst spült spülen gespült")
TIDY = Verb("tidy tidies tidied tidying", "räume räumst räumt räumen aufgeräumt", "auf")
TALK = Verb("talk talks talked talking", "spreche sprichst spricht sprechen gesprochen")
BUY = Verb("buy buys bought buying", "kaufe kaufst kauft kaufen gekauft")
REPAIR = Verb("repair repairs repaired repairing", "repariere reparierst repariert reparieren repariert")
PAINT = Verb("paint paints painted painting", "male malst malt malen gemalt")


@dataclass(frozen=True, eq=False)
class Activity:
    """What somebody does: a verb and what belongs to it; `de_not` is the same denied (kein, or nicht in its place)."""

    verb: Verb
    en_rest: str
    zh: str
    de: str
    de_not: str
    ongoing: bool = True  # one can be in the middle of it
    adults: bool = False

    def __str__(self) -> str:
        return words(self.verb.en_forms[0], self.en_rest)


def eating(en: str, zh: str, de: str, ein: str) -> Activity:
    return Activity(EAT, en, f"吃{zh}", de, f"{ein} {de}")


def drinking(en: str, zh: str, de: str, ein: str, adults: bool = False) -> Activity:
    return Activity(DRINK, en, f"喝{zh}", de, f"{ein} {de}", adults=adults)


def playing(en: str, zh: str, de: str) -> Activity:
    return Activity(PLAY, en, zh, de, f"nicht {de}")


def going_to(en: str, zh: str, de: str, adults: bool = False) -> Activity:
    return Activity(GO, en, zh, de, f"nicht {de}", ongoing=False, adults=adults)


ACTIVITIES = (
    drinking("coffee", "咖啡", "Kaffee", "keinen", adults=True),
    drinking("tea", "茶", "Tee", "keinen"),
    drinking("milk", "牛奶", "Milch", "keine"),
    drinking("beer", "啤酒", "Bier", "kein", adults=True),
    drinking("wine", "葡萄酒", "Wein", "keinen", adults=True),
    drinking("juice", "果汁", "Saft", "keinen"),
    eating("fish", "鱼", "Fisch", "keinen"),
    eating("meat", "肉", "Fleisch", "kein"),
    eating("fruit", "水果", "Obst", "kein"),
    eating("vegetables", "蔬菜", "Gemüse", "kein"),
    eating("cake", "蛋糕", "Kuchen", "keinen"),
    eating("bread", "面包", "Brot", "kein"),
    eating("noodles", "面条", "Nudeln", "keine"),
    eating("rice", "米饭", "Reis", "keinen"),
    playing("football", "踢足球", "Fußball"),
    playing("basketball", "打篮球", "Basketball"),
    playing("tennis", "打网球", "Tennis"),
    playing("table tennis", "打乒乓球", "Tischtennis"),
    playing("chess", "下棋", "Schach"),
    playing("the piano", "弹钢琴", "Klavier"),
    going_to("to the park", "去公园", "in den Park"),
    going_to("to the library", "去图书馆", "in die Bibliothek"),
    going_to("to the supermarket", "去超市", "in den Supermarkt"),
    going_to("to the museum", "去博物馆", "ins Museum"),
    going_to("to the cinema", "去电影院", "ins Kino"),
    going_to("to the theatre", "去剧院", "ins Theater"),
    going_to("to the market", "去市场", "auf den Markt"),
    going_to("to the zoo", "去动物园", "in den Zoo"),
    going_to("to the doctor", "去看医生", "zum Arzt"),
    going_to("to work", "去上班", "zur Arbeit", adults=True),
    going_to("shopping", "去买东西", "einkaufen"),
    going_to("swimming", "去游泳", "schwimmen"),
    going_to("for a walk", "去散步", "spazieren"),
    Activity(WATCH_TV, "TV", "看电视", "", "nicht"),
    Activity(WATCH, "a film", "看电影", "einen Film", "keinen Film"),
    Activity(READ, "a book", "看书", "ein Buch", "kein Buch"),
    Activity(READ, "the newspaper", "看报纸", "Zeitung", "keine Zeitung"),
    Activity(LISTEN, "to music", "听音乐", "Musik", "keine Musik"),
    Activity(LEARN, "Chinese", "学中文", "Chinesisch", "kein Chinesisch"),
    Activity(LEARN, "German", "学德语", "Deutsch", "kein Deutsch"),
    Activity(STUDY, "for the exam", "准备考试", "für die Prüfung", "nicht für die Prüfung"),
    Activity(WRITE, "an e-mail", "写电子邮件", "eine E-Mail", "keine E-Mail"),
    Activity(WRITE, "a letter", "写信", "einen Brief", "keinen Brief"),
    Activity(MAKE, "homework", "做作业", "Hausaufgaben", "keine Hausaufgaben"),
    Activity(TAKE, "photos", "拍照片", "Fotos", "keine Fotos"),
    Activity(CLEAN, "the kitchen", "打扫厨房", "die Küche", "die Küche nicht"),
    Activity(TIDY, "the living room", "收拾客厅", "das Wohnzimmer", "das Wohnzimmer nicht"),
    Activity(DO_LAUNDRY, "the laundry", "洗衣服", "die Wäsche", "die Wäsche nicht"),
    Activity(DO_DISHES, "the dishes", "洗碗", "das Geschirr", "das Geschirr nicht"),
    Activity(WASH, "the car", "洗车", "das Auto", "das Auto nicht", adults=True),
    Activity(REPAIR, "the bicycle", "修自行车", "das Fahrrad", "das Fahrrad nicht"),
    Activity(BAKE, "a cake", "烤蛋糕", "einen Kuchen", "keinen Kuchen"),
    Activity(BUY, "bread", "买面包", "Brot", "kein Brot"),
    Activity(BUY, "flowers", "买花", "Blumen", "keine Blumen"),
    Activity(TALK, "with friends", "和朋友聊天", "mit Freunden", "nicht mit Freunden"),
    Activity(RIDE, "a bicycle", "骑自行车", "Fahrrad", "nicht Fahrrad"),
    Activity(SURF, "the internet", "上网", "im Internet", "nicht im Internet"),
    Activity(COOK, "", "做饭", "", "nicht"),
    Activity(WORK, "", "工作", "", "nicht", adults=True),
    Activity(DANCE, "", "跳舞", "", "nicht"),
    Activity(SING, "", "唱歌", "", "nicht"),
    Activity(JOG, "", "跑步", "", "nicht"),
    Activity(PAINT, "", "画画", "", "nicht"),
)


def activity_fits(someone: Someone, activity: Activity) -> bool:
    if activity.adults and someone is CHILDREN:
        return False
    return not (someone is FRIENDS and activity.zh == "和朋友聊天")
