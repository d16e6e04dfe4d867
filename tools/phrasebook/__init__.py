"""A hand-written grammar of everyday sentences in English, Chinese and German: its words and the families of its sentences.

Why a grammar of three languages in step, and not a list of sentences: a small model can learn it to near perfection on
a laptop, and whatever it gets wrong is a real mistake of grammar, not a matter of taste. For that, a sentence in any
one of the languages must determine the other two. Real language is not so kind, so the grammar keeps to the part of
each language where it is:

- tense: Chinese verbs have none, so every past or future sentence names its time (昨天, 明天);
- "you" is one familiar person (你, du), never several and never the formal Sie;
- German "sie" is she or they, told apart by the verb; as an object nothing tells them apart, so "them" is no object;
- "ihr" (her, their) is always the subject's own;
- Chinese has an older and a younger brother, so English and German say which.

A filler (a person, a thing, an activity, a time) knows how it looks in each language; a family is a table of slots,
each with its list of fillers, and one function that writes the three sentences. Slots are typed: nobody eats a chair.

The price: it is a small, tidy world. A model trained on it does not speak these languages.
The words are in wording.py, persons.py, activities.py, things.py and places.py, and clauses.py joins them; then comes a module
a topic. None of them knows of splits, sampling or directions: see book.py and glassformer.data.builtin.phrases.
"""

from tools.phrasebook.deeds import does_to, feels
from tools.phrasebook.everyday import future, habit, how_often, modal_today, past, right_now
from tools.phrasebook.families import Family
from tools.phrasebook.food import likes_but_not, please_bring, portions, prefers, tastes, there_is
from tools.phrasebook.people import (
    has,
    has_but_not,
    has_job,
    how_people_are,
    is_years_old,
    taller_than,
    years_older,
)
from tools.phrasebook.questions import (
    knows_when,
    what_question,
    when_question,
    who_question,
    why_question,
)
from tools.phrasebook.reasons import because, errands
from tools.phrasebook.shopping import (
    belongs,
    buys,
    gives,
    goods_are,
    how_much,
    needs,
    price,
    where_to_buy,
)
from tools.phrasebook.times import birthday, daily_routine, since, timetable, what_day, what_time
from tools.phrasebook.travel import (
    finding_the_way,
    has_been,
    hours_between,
    location,
    minutes_between,
    own_things,
    tickets,
    trip,
)
from tools.phrasebook.weather import (
    cold_or_warm,
    colder_than,
    if_it_rains,
    rain_or_snow,
    temperature,
    weather,
)
from tools.phrasebook.wishes import (
    greets,
    hopes_that,
    if_someone_had,
    likes_doing,
    requests,
    would_like,
)
from tools.phrasebook.work import can_do, finds, speaks, works_at

FAMILIES: tuple[Family, ...] = (
    weather,
    cold_or_warm,
    colder_than,
    temperature,
    rain_or_snow,
    if_it_rains,
    what_time,
    timetable,
    daily_routine,
    what_day,
    birthday,
    since,
    has,
    has_but_not,
    how_people_are,
    taller_than,
    years_older,
    feels,
    does_to,
    is_years_old,
    buys,
    price,
    how_much,
    goods_are,
    needs,
    gives,
    where_to_buy,
    belongs,
    trip,
    finding_the_way,
    location,
    minutes_between,
    hours_between,
    tickets,
    has_been,
    own_things,
    portions,
    please_bring,
    likes_but_not,
    prefers,
    tastes,
    there_is,
    has_job,
    finds,
    speaks,
    can_do,
    works_at,
    habit,
    past,
    future,
    modal_today,
    how_often,
    right_now,
    because,
    errands,
    why_question,
    when_question,
    who_question,
    what_question,
    knows_when,
    would_like,
    likes_doing,
    hopes_that,
    if_someone_had,
    greets,
    requests,
)
