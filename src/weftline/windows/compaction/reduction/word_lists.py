"""Closed word classes: function words, fillers, words that change the truth of a statement, numbers and units.

English in full, of other languages the commonest; a language's lists apply only to texts in it, because "war" and "die"
are content in English. For languages without a list, values rest on length and repetition.
"""

from __future__ import annotations

from typing import NamedTuple


class WordLists(NamedTuple):
    """The closed classes of one language, in lower case."""

    function: frozenset[str]
    fillers: frozenset[str]
    negations: frozenset[str]
    conditions: frozenset[str]
    numbers: frozenset[str]
    units: frozenset[str]


# Written alike in most languages.
_COMMON_UNITS = """
% am pm a.m p.m h min ms s kg g mg µg lb lbs oz ml l km m cm mm kb mb gb tb usd eur gbp chf jan feb mar apr jun jul aug
sep sept oct nov dec
"""


def _lists(
    function: str, fillers: str, negations: str, conditions: str, numbers: str = "", units: str = ""
) -> WordLists:
    texts = (function, fillers, negations, conditions, numbers, units + _COMMON_UNITS)
    return WordLists(*(frozenset(text.split()) for text in texts))


ENGLISH = _lists(
    function="""
a an the this that these those i me my mine myself you your yours yourself yourselves he his himself she her hers
herself it its itself we us our ours ourselves they them their theirs themselves who whom whose which what when why how
whether am is are was were be been being do does did have has had will would shall should can could may must ought gonna
wanna gotta to of in on at by for with from into onto upon about as than then so and or also just there here any such
very really quite ever yet because but however i'm you're he's she's it's we're they're i've you've we've they've i'd
you'd he'd she'd we'd they'd i'll you'll he'll she'll we'll they'll it'll that'll that's who's what's where's when's
why's how's here's there's let's that'd who'd
""",
    fillers="""
um uh uhm umm hm hmm mm mmm mhm mm-hmm uh-huh huh er erm ah aha oh ooh eh yeah yep yup yes ok okay kay alright right
well like actually basically literally obviously anyway anyways hey hi hello bye goodbye wow whoa haha hahaha lol
thanks thank please sorry cheers welcome sure absolutely definitely totally exactly indeed certainly kinda sorta
""",
    negations="""
not no never none nobody nothing nowhere neither nor without cannot can't cant don't dont doesn't doesnt didn't didnt
won't wouldn't wouldnt shouldn't shouldnt couldn't couldnt isn't isnt aren't arent wasn't wasnt weren't werent haven't
havent hasn't hasnt hadn't hadnt mustn't needn't mightn't shan't ain't hardly barely unable
""",
    conditions="if unless except instead until only maybe perhaps might",
    numbers="""
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half
""",
    units="""
percent per cent o'clock second seconds minute minutes mins hour hours hr hrs day days week weeks month months year
years euro euros dollar dollars pound pounds cents mile miles meter meters metre metres foot feet inch inches
times people january february march april june july august september october november december
""",
)
_GERMAN = _lists(
    function="""
der die das den dem des ein eine einen einem einer eines und oder ich du er sie es wir ihr mich dich uns euch mir dir
ihm ihnen mein meine dein deine sein seine unser unsere ist sind war waren bin bist hat habe haben hatte wird werden
wurde zu zur zum im in am an auf mit von vom bei aus nach für über unter dass daß als auch noch schon so da dann weil
aber wie was wer wo ja doch sich man
""",
    fillers="äh ähm hm hmm ach also genau halt eben mal danke bitte hallo tja na okay ok tschüss",
    negations="nicht kein keine keinen keinem keiner nie niemals niemand nichts ohne weder",
    conditions="falls wenn außer vielleicht nur bis statt",
    numbers="null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig hundert tausend million",
    units="prozent uhr sekunden minuten stunden tage tagen wochen monate jahre euro",
)
_FRENCH = _lists(
    function="""
le la les un une des du de et ou je tu il elle on nous vous ils elles me te se mon ton son ma ta sa mes tes ses
notre votre leur est sont était être a ai ont avait dans sur avec pour par en au aux ce cet cette ces que qui quoi mais
dont où y c'est j'ai d'un d'une qu'il
""",
    fillers="euh ben bah hein oui voilà merci bonjour salut alors donc ok",
    negations="ne pas jamais rien aucun aucune personne sans ni non n'est n'a n'ai",
    conditions="si sauf peut-être seulement",
    numbers="zéro deux trois quatre cinq six sept huit neuf dix onze douze vingt trente cent mille million",
    units="pour heures minutes jours semaines mois ans euros",
)
_SPANISH = _lists(
    function="""
el la los las un una unos unas y o yo tú él ella nosotros ellos mi tu su mis tus sus es son era ser está ha han había
en con por para al del de que como muy pero ya lo le les se me te nos
""",
    fillers="eh pues bueno sí gracias hola vale claro ok",
    negations="no nunca jamás nada nadie ningún ninguno ninguna sin tampoco ni",
    conditions="si excepto salvo quizás sólo solo",
    numbers="cero dos tres cuatro cinco seis siete ocho nueve diez once doce veinte treinta cien mil millón",
    units="horas minutos días semanas meses años euros",
)
LANGUAGES = (ENGLISH, _GERMAN, _FRENCH, _SPANISH)
# Sounds that say nothing, in any language.
HESITATIONS = frozenset(
    [
        "um",
        "uh",
        "uhm",
        "umm",
        "hm",
        "hmm",
        "mm",
        "mmm",
        "mhm",
        "mm-hmm",
        "mm-mm",
        "uh-huh",
        "huh",
        "er",
        "erm",
        "ah",
        "aha",
        "oh",
        "ooh",
        "eh",
        "äh",
        "ähm",
        "öh",
        "euh",
    ]
)
NO_LANGUAGE = _lists("", "", "", "")
