"""Sentences of the phrasebook in English, Chinese and German, written by hand and not by the grammar."""

BY_HAND: list[tuple[str, str, str]] = [
    # plain and short
    ("I like you.", "我喜欢你。", "Ich mag dich."),
    ("The weather is really nice today.", "今天天气真好。", "Das Wetter ist heute wirklich schön."),
    ("Is the weather in Berlin nice today?", "今天柏林的天气好吗？", "Ist das Wetter in Berlin heute schön?"),
    # English agreement and do-support; German verb forms, Fugen-e, vowel change
    ("He likes to drink tea.", "他喜欢喝茶。", "Er trinkt gern Tee."),
    ("They like to drink tea.", "他们喜欢喝茶。", "Sie trinken gern Tee."),
    ("She likes to drink tea.", "她喜欢喝茶。", "Sie trinkt gern Tee."),
    ("Does he know you?", "他认识你吗？", "Kennt er dich?"),
    ("My older brother doesn't like to dance.", "我哥哥不喜欢跳舞。", "Mein älterer Bruder tanzt nicht gern."),
    ("You read the newspaper every evening.", "你每天晚上都看报纸。", "Du liest jeden Abend Zeitung."),
    ("Are you working?", "你正在工作吗？", "Arbeitest du gerade?"),
    ("My mother isn't tired today.", "我妈妈今天不累。", "Meine Mutter ist heute nicht müde."),
    ("I am not hungry.", "我不饿。", "Ich bin nicht hungrig."),
    (
        "The children were a bit nervous yesterday.",
        "孩子们昨天有点儿紧张。",
        "Die Kinder waren gestern ein bisschen nervös.",
    ),
    # a and an; professions by gender
    ("My aunt is an engineer.", "我阿姨是工程师。", "Meine Tante ist Ingenieurin."),
    ("My father isn't a doctor.", "我爸爸不是医生。", "Mein Vater ist kein Arzt."),
    ("My mother used to be a teacher.", "我妈妈以前是老师。", "Meine Mutter war früher Lehrerin."),
    # classifiers, 两 and 二, plurals
    ("I bought a book yesterday.", "我昨天买了一本书。", "Ich habe gestern ein Buch gekauft."),
    ("She has two cats.", "她有两只猫。", "Sie hat zwei Katzen."),
    ("He would like three cups of tea.", "他想要三杯茶。", "Er möchte drei Tassen Tee."),
    (
        "It is twenty-two degrees in Beijing today.",
        "今天北京二十二度。",
        "In Peking sind es heute zweiundzwanzig Grad.",
    ),
    ("Last week we bought four shirts.", "上个星期我们买了四件衬衫。", "Letzte Woche haben wir vier Hemden gekauft."),
    ("We have an older brother.", "我们有一个哥哥。", "Wir haben einen älteren Bruder."),
    ("There are no apples on the table.", "桌子上没有苹果。", "Auf dem Tisch sind keine Äpfel."),
    ("There is a key in the box.", "盒子里有一把钥匙。", "In der Kiste ist ein Schlüssel."),
    # past, future, negation with 没 and 不
    ("I didn't drink coffee yesterday.", "我昨天没喝咖啡。", "Ich habe gestern keinen Kaffee getrunken."),
    (
        "Did your parents go to the park last week?",
        "你父母上个星期去公园了吗？",
        "Sind deine Eltern letzte Woche in den Park gegangen?",
    ),
    (
        "My younger sister won't watch TV tomorrow.",
        "我妹妹明天不会看电视。",
        "Meine jüngere Schwester wird morgen nicht fernsehen.",
    ),
    ("He never eats meat.", "他从来不吃肉。", "Er isst nie Fleisch."),
    ("Will it rain in Hamburg tomorrow?", "明天汉堡会下雨吗？", "Wird es morgen in Hamburg regnen?"),
    # modal verbs: the infinitive last
    ("My father has to work today.", "我爸爸今天必须工作。", "Mein Vater muss heute arbeiten."),
    ("You don't have to clean the kitchen today.", "你今天不用打扫厨房。", "Du musst heute die Küche nicht putzen."),
    ("I can't find my passport.", "我找不到我的护照。", "Ich kann meinen Pass nicht finden."),
    ("She can't speak Japanese.", "她不会说日语。", "Sie kann kein Japanisch sprechen."),
    # verb second and separable verbs
    ("Every evening he watches TV.", "每天晚上他都看电视。", "Jeden Abend sieht er fern."),
    (
        "The train leaves at half past three tomorrow.",
        "火车明天三点半出发。",
        "Der Zug fährt morgen um halb vier ab.",
    ),
    (
        "Do you get up at half past six every morning?",
        "你每天早上六点半起床吗？",
        "Stehst du jeden Morgen um halb sieben auf?",
    ),
    ("It is a quarter to one now.", "现在十二点四十五分。", "Es ist jetzt Viertel vor eins."),
    ("It is one o'clock now.", "现在一点。", "Es ist jetzt ein Uhr."),
    (
        "Please close the window before you go to bed.",
        "你睡觉以前，请关上窗户。",
        "Bitte mach das Fenster zu, bevor du ins Bett gehst.",
    ),
    # subordinate clauses: the verb last
    (
        "Because he was ill, he didn't go to work yesterday.",
        "因为他生病了，所以他昨天没去上班。",
        "Weil er krank war, ist er gestern nicht zur Arbeit gegangen.",
    ),
    (
        "If it rains tomorrow, we won't go to the zoo.",
        "如果明天下雨，我们就不去动物园。",
        "Wenn es morgen regnet, gehen wir nicht in den Zoo.",
    ),
    (
        "I hope that she will bake a cake tomorrow.",
        "我希望她明天会烤蛋糕。",
        "Ich hoffe, dass sie morgen einen Kuchen backen wird.",
    ),
    ("Do you know where the bank is?", "你知道银行在哪里吗？", "Weißt du, wo die Bank ist?"),
    ("He doesn't know when the bus arrives.", "他不知道大巴什么时候到。", "Er weiß nicht, wann der Bus ankommt."),
    (
        "If I had time, I would go swimming.",
        "如果我有时间，我就会去游泳。",
        "Wenn ich Zeit hätte, würde ich schwimmen gehen.",
    ),
    # accusative and dative
    (
        "My grandmother needs a black coat.",
        "我奶奶需要一件黑色的大衣。",
        "Meine Großmutter braucht einen schwarzen Mantel.",
    ),
    ("Yesterday I helped my father.", "昨天我帮助了我爸爸。", "Gestern habe ich meinem Vater geholfen."),
    (
        "My mother bought me a bag yesterday.",
        "我妈妈昨天给我买了一个包。",
        "Meine Mutter hat mir gestern eine Tasche gekauft.",
    ),
    (
        "This umbrella doesn't belong to our neighbour.",
        "这把雨伞不是我们邻居的。",
        "Dieser Regenschirm gehört unserem Nachbarn nicht.",
    ),
    (
        "We will go to Vienna by train tomorrow.",
        "我们明天会坐火车去维也纳。",
        "Wir werden morgen mit dem Zug nach Wien fahren.",
    ),
    (
        "Last week she went to Rome by plane.",
        "上个星期她坐飞机去了罗马。",
        "Letzte Woche ist sie mit dem Flugzeug nach Rom geflogen.",
    ),
    ("The museum is opposite the church.", "博物馆在教堂对面。", "Das Museum ist gegenüber der Kirche."),
    (
        "Excuse me, how do I get to the train station?",
        "请问，去火车站怎么走？",
        "Entschuldigung, wie komme ich zum Bahnhof?",
    ),
    ("Is there a pharmacy near here?", "这附近有药店吗？", "Gibt es hier in der Nähe eine Apotheke?"),
    # comparison, age, dates, prices, food
    ("I am much taller than her.", "我比她高得多。", "Ich bin viel größer als sie."),
    ("He is two years older than me.", "他比我大两岁。", "Er ist zwei Jahre älter als ich."),
    ("My mother is forty-two years old.", "我妈妈四十二岁。", "Meine Mutter ist zweiundvierzig Jahre alt."),
    ("My birthday is on the third of May.", "我的生日是五月三号。", "Ich habe am dritten Mai Geburtstag."),
    (
        "Today is Tuesday, the twenty-first of February.",
        "今天是二月二十一号，星期二。",
        "Heute ist Dienstag, der einundzwanzigste Februar.",
    ),
    ("This hat costs twenty-one euros.", "这顶帽子二十一欧元。", "Dieser Hut kostet einundzwanzig Euro."),
    ("This red dress is too expensive.", "这条红色的连衣裙太贵了。", "Dieses rote Kleid ist zu teuer."),
    (
        "My father likes fish but not cheese.",
        "我爸爸喜欢吃鱼，但是不喜欢吃奶酪。",
        "Mein Vater mag Fisch, aber keinen Käse.",
    ),
    ("The soup here tastes very good.", "这里的汤很好喝。", "Die Suppe hier schmeckt sehr gut."),
    ("He has lived in Berlin for three years.", "他在柏林住了三年了。", "Er wohnt seit drei Jahren in Berlin."),
    ("Have you ever been to Paris?", "你去过巴黎吗？", "Warst du schon einmal in Paris?"),
    (
        "What did your older sister buy yesterday?",
        "你姐姐昨天买了什么？",
        "Was hat deine ältere Schwester gestern gekauft?",
    ),
    ("Who would like to play chess tomorrow?", "谁明天想下棋？", "Wer möchte morgen Schach spielen?"),
    ("I wish you a good journey.", "我祝你旅途愉快。", "Ich wünsche dir eine gute Reise."),
]
