"""Wording by which decisions, constraints, commitments and the like are recognised, without a model.

Two strengths. Cues are loose: they raise the importance of a text for search. Statements are strict: compaction keeps
each as a key fact, which costs tokens. English first, then German, French and Spanish. All repetitions are bounded, so
time is linear in the length of the text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

StatementKind = Literal[
    "decision",
    "commitment",
    "constraint",
    "requirement",
    "preference",
    "open_question",
    "blocker",
    "owner",
    "deadline",
]

DECISION_CUE = re.compile(
    r"\b(decided|decision|decide[sd]? (to|on|against)|agreed|we (chose|choose|picked|settled)|go(ing)? with|approved|"
    r"rejected|concluded|conclusion|final(ly|ised|ized)?|verdict)\b",
    re.IGNORECASE,
)
COMMITMENT_CUE = re.compile(
    r"\b(I|we|you|they)('ll| will| shall| promise| commit| am going to| are going to)\b|\b(deadline|due (by|on)|"
    r"by (monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|end of)|action item|assigned to|"
    r"responsible for|owner:)",
    re.IGNORECASE,
)
CONSTRAINT_CUE = re.compile(
    r"\b(must( not)?|mustn't|never|always|required?|requirement|shall not|may not|cannot|can't|only if|at (most|least)|"
    r"no (more|less) than|limit(ed)?|constraint|forbidden|not allowed|mandatory|depends on|blocked|blocker)\b",
    re.IGNORECASE,
)
FINDING_CUE = re.compile(
    r"\b(root cause|because|found that|turns out|failed|failure|error|bug|broken|fixed|risk|warning|important|critical|"
    r"urgent|note that|remember)\b",
    re.IGNORECASE,
)


# Longer sentences are cut before they are matched.
MAX_STATEMENT = 400

_DAYS = (
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag samstag "
    "sonntag lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo"
).replace(" ", "|")
_MONTHS = (
    "january february march april may june july august september october november december jan feb mar apr jun jul aug "
    "sep sept oct nov dec januar februar märz mai juni juli oktober dezember janvier février mars avril juin juillet "
    "août septembre octobre novembre décembre enero febrero marzo abril mayo junio julio agosto septiembre octubre "
    "noviembre diciembre"
).replace(" ", "|")
# What makes "by ..." a deadline.
_WHEN = (
    rf"(?:{_DAYS}|tomorrow|tonight|noon|midnight|eod|eow|cob|morgen|demain|mañana|(?:the )?end of|ende|fin de|"
    rf"(?:next|nächste[nr]?|kommende[nr]?) \w|q[1-4]\b|(?:{_MONTHS})\.? \d|\d{{4}}-\d\d|\d{{1,2}}[./]\d{{1,2}}|"
    rf"(?:the )?\d{{1,2}}(?:st|nd|rd|th|\.)? (?:of |de )?(?:{_MONTHS})\b|"
    r"\d{1,2}(?::\d\d)? ?(?:am|pm|uhr|h)\b|\d{1,2}:\d\d)"
)
_NUMBER = (
    r"(?:\w+ ){0,3}?(?:[$€£]?\d|(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|"
    r"fifty|hundred|half)\b)"
)
_ACTIONS = (
    "send|deliver|finish|fix|write|prepare|deploy|ship|review|update|call|e-?mail|follow up|provide|submit|implement|"
    "migrate|handle|take care|complete|publish|release|share|pay|book|schedule|investigate|document|present|contact|"
    "report|get back|draft|set up|rotate|refund|remind|notify|order|upgrade|roll out|hand over|rewrite|announce|sign|"
    "cover|own|arrange|organi[sz]e|post|merge|close|renew|invite|circulate"
)
_MODAL = "(?:must|shall|should|has to|have to|is to|are to|need to|needs to)"
# What follows an order, unlike in "never mind", "I never thought" and "always great to see you".
_NO_ORDER = (
    "worry|mind|know|think|really|even|you|we|i|they|he|she|it|a|the|see|hesitate|been|had|be afraid|give up|let|feel|"
    "want|have|need|actually|usually|always|get me|like|remember|care|believe|stress|seem|look|make sense|exist|mean|"
    r"tell|good|great|nice|fun|here|there|happy|so|calm|forget (?:they|that|how|about|you|we)|quite|fully|\w+ed|\w+ing"
)
_ORDER = rf"(?!(?:{_NO_ORDER})\b)[a-z]"
_CLAUSE = r"(?:^|[.;:(\u2013\u2014-] |\b(?:please|bitte) )"
_LATER_CLAUSE = r"(?:, |\b(?:and|but|so|then|also) )"
_PLAN = (
    "(?:plan|proposal|decision|idea|design|migration|change|option|approach|request|contract|vendor|release|rollout|"
    "rule|choice|constraint|requirement|preference|feature|order|meeting)"
)

# Kind, words of which the sentence has one, and the pattern; without a pattern the word alone is enough.
_ROWS: tuple[tuple[StatementKind, str, str], ...] = (
    ("open_question", "open", r"\bopen (?:question|issue|point)s?\b|(?:still|remains) open\b"),
    ("open_question", "remains", r"\bquestion remains\b"),
    (
        "open_question",
        "decided determined confirmed clarified discussed",
        r"\bto be (?:decided|determined|confirmed|clarified|discussed)\b",
    ),
    ("open_question", "tbd tbc undecided unresolved", ""),
    (
        "open_question",
        "decided clear",
        r"\bnot (?:yet )?(?:clear|decided) (?:yet )?(?:whether|if|who|which)\b",
    ),
    ("open_question", "haven't hasn't not", r"\b(?:have|has)(?:n't| not) (?:yet )?(?:decided|agreed|settled)\b"),
    ("open_question", "still", r"\bstill (?:unclear|undecided|unresolved|unknown|pending)\b"),
    ("open_question", "unclear", r"\bunclear (?:whether|if|who|which|how|when)\b"),
    (
        "open_question",
        "need needs",
        r"\bneeds? to (?:clarify|find out|decide|figure out) (?:whether|if|who|which|how|when)",
    ),
    (
        "open_question",
        "offen offene unklar ungeklärt",
        r"\boffene Frage|\bnoch (?:offen|unklar|ungeklärt)|\bunklar,? ob",
    ),
    ("open_question", "nicht", r"\bnoch nicht (?:entschieden|geklärt)\b"),
    (
        "open_question",
        "ouverte reste déterminer confirmer définir",
        r"\bquestion ouverte|\breste à|\bà (?:déterminer|confirmer|définir)\b",
    ),
    ("open_question", "encore", r"\bpas encore (?:décidé|clair)|\bne sait pas encore\b"),
    (
        "open_question",
        "abierta queda determinar",
        r"\bpregunta abierta|\bqueda por|\bpor (?:determinar|confirmar|definir)\b",
    ),
    ("open_question", "aún claro", r"\baún no (?:se sabe|está)|\bno está claro (?:si|quién|cuándo)\b"),
    ("open_question", "sure", r"\bnot sure yet\b|\bstill not sure\b"),
    (
        "open_question",
        "still",
        r"\bstill (?:have|has|need|needs) to (?:figure|decide|find|clarify|check|agree|determine|settle)\b",
    ),
    ("open_question", "air seen", r"\bup in the air\b|\bremains to be seen\b"),
    ("open_question", "never", r"\bnever (?:settled|decided|agreed|figured out) (?:on|how|who|what|which|whether)\b"),
    (
        "blocker",
        "blocked",
        r"\bblocked (?:by|on|until|because|for)\b|\b(?:is|are|still|currently|remains?|now) blocked\b",
    ),
    ("blocker", "blocker blockers showstopper", ""),
    ("blocker", "blocking blocks", r"\bis blocking\b|\bblocks (?:the|our|us|this|\w+ing)\b"),
    ("blocker", "waiting", r"\bwaiting (?:for|on) (?!me\b|you\b|it\b|this day|that day|to\b)\S"),
    ("blocker", "stuck", r"\bstuck (?:on|because|until|waiting)\b"),
    (
        "blocker",
        "cannot can't unable",
        r"(?:cannot|can't|unable to) (?:proceed|continue|deploy|merge|ship|release|go live)\b",
    ),
    ("blocker", "hold held", r"\bheld up by\b|\b(?:is|are|put|remains?) on hold\b"),
    ("blocker", "blockiert", ""),
    ("blocker", "warten wartet", r"\bwarte[nt] (?:noch )?auf\b"),
    ("blocker", "weiter", r"\b(?:können|kommen) nicht weiter\b"),
    ("blocker", "bloqué bloquée bloqués bloquant", ""),
    ("blocker", "attente attendons attend", r"\ben attente d|\bnous attendons|\bon attend\b"),
    ("blocker", "bloqueado bloqueada bloqueados bloqueo", ""),
    ("blocker", "espera esperando", r"\ba la espera de\b|\bestamos esperando\b"),
    ("blocker", "can't cannot", r"\b(?:can't|cannot) (?:get into|access|log in|reach|connect)\b"),
    (
        "blocker",
        "down broken offline failing",
        (
            r"\b(?:vpn|server|staging|production|network|database|service|api|build|ci) is (?:down|broken|"
            r"offline|failing)\b"
        ),
    ),
    ("blocker", "stuck", r"\bstuck ?[:,]"),
    ("blocker", "need needs", r"\bneeds? (?:access|approval|credentials|permission|sign-off|clearance|the keys?)\b"),
    (
        "blocker",
        "pending awaiting",
        r"\b(?:pending|awaiting) (?:approval|sign-off|review|feedback|confirmation|access|a response)\b",
    ),
    ("blocker", "before", r"\bbefore (?:i|we) can (?:continue|start|proceed|go on|deploy|merge)\b"),
    ("blocker", "nobody red", r"\bnobody can (?:merge|deploy|log in|work|access)\b|\bbuild is red\b"),
    ("blocker", "esperando", r"\b(?:estamos|seguimos|sigo|estoy) esperando\b"),
    ("decision", "decided opted overruled beschlossen", ""),
    (
        "decision",
        "agreed",
        r"\bagreed (?:to|on|upon|that|we|it|not|against)\b|\b(?:we|all|was|were|is)(?:'ve| have)? agreed\b",
    ),
    (
        "decision",
        "chose picked selected adopted approved rejected",
        r"\bwe(?:'ve| have)?(?: now| finally| all)? (?:chose|picked|selected|adopted|approved|rejected)\b",
    ),
    ("decision", "chosen", r"\b(?:is|was|were|been|have|'ve) (?:now |finally )?chosen\b"),
    ("decision", "settled", r"\bsettled on\b"),
    ("decision", "ruled signed", r"\bruled out\b|\bsigned off\b"),
    ("decision", "finalised finalized", ""),
    (
        "decision",
        (
            "approved rejected selected adopted cancelled canceled withdrawn revoked dropped scrapped "
            "postponed abandoned superseded deprecated"
        ),
        (
            r"\b(?:is|are|was|were|been|got) (?:now |finally |formally |hereby )?(?:approved|rejected|selected|"
            r"adopted|cancell?ed|withdrawn|revoked|dropped|scrapped|postponed|abandoned|superseded|deprecated)\b"
        ),
    ),
    (
        "decision",
        "approved rejected cancelled canceled withdrew revoked abandoned scrapped dropped reversed",
        (
            rf"\b(?:approved|rejected|cancell?ed|withdrew|revoked|abandoned|scrapped|dropped|reversed) (?:the|"
            rf"our|this|that|my|both|all) (?:\w+ ){{0,3}}{_PLAN}"
        ),
    ),
    ("decision", "final", r"\bfinal (?:decision|choice|answer|call|verdict|pick)\b"),
    (
        "decision",
        "decision verdict consensus",
        (
            r"\b(?:the|our|my|this) decision (?:is|was|stands|to)\b|\b(?:decision|verdict|consensus) (?:is|was|"
            r"stands) (?:to|that|final|not|made)\b"
        ),
    ),
    (
        "decision",
        "going go sticking staying proceeding stick stay proceed",
        (
            r"\b(?:we|i)(?:'re|'m| are| am)(?: now)? (?:going|sticking|staying|proceeding) with\b|\b(?:let's|"
            r"let us|we'll|we will)(?: just| now)? (?:go|stick|stay|proceed) with\b"
        ),
    ),
    (
        "decision",
        "let's let we'll will going",
        (
            r"\b(?:let's|let us|we'll|we will|we're going to|we are going to)(?: not| now| just)? "
            r"(?:(?:use|adopt|drop|switch|migrate|deprecate|replace|skip|postpone)\b|"
            r"(?:keep|make|move|change) (?-i:(?=.{0,60}[A-Z0-9`\"_])))"
        ),
    ),
    ("decision", "plan plans", r"\bchange of plans?\b"),
    ("decision", "scratch thought thoughts", r"\bscratch that\b|\bon second thoughts?\b"),
    ("decision", "longer", r"\bno longer (?:use|need|want|go|plan|support|appl|valid|require|prefer)"),
    (
        "decision",
        "instead",
        (
            r"\b(?:use|using|go|going|make|take|pick|choose|do|move|deploy|send|book|ship) .{1,80}\binstead\b|"
            r"\binstead,? (?:use|go|make|take|pick|we)\b|\binstead of\b.{1,80}\b(?:use|using|we'll|we will)\b"
        ),
    ),
    (
        "decision",
        "switched switching changed",
        (
            r"\b(?:switched|switching|changed) (?:it |this |that |the \w+ |over )?(?:from .{1,60}? )?to "
            r"(?-i:(?=.{0,40}[A-Z0-9`\"_]))"
        ),
    ),
    (
        "decision",
        "forget drop cancel withdraw revoke ignore reverse undo",
        (
            rf"\b(?:forget|drop|cancel|withdraw|revoke|ignore|reverse|undo) (?:about )?(?:the|that|this|my|our) "
            rf"(?:\w+ ){{0,3}}{_PLAN}"
        ),
    ),
    (
        "decision",
        "entschieden geeinigt festgelegt vereinbart genehmigt abgelehnt verworfen gestrichen",
        (
            r"\b(?:haben|habe|hat|wurde|wird|ist|sind)\b.{0,160}\b(?:entschieden|geeinigt|festgelegt|vereinbart|"
            r"genehmigt|abgelehnt|verworfen|gestrichen)\b"
        ),
    ),
    (
        "decision",
        "nehmen verwenden nutzen bleiben setzen wechseln stellen",
        r"\bwir (?:nehmen|verwenden|nutzen|bleiben bei|setzen auf|wechseln|stellen)\b",
    ),
    (
        "decision",
        (
            "décidé choisi convenu opté validé validée approuvé approuvée rejeté rejetée abandonné abandonnée "
            "annulé annulée retenu"
        ),
        (
            r"\b(?:nous avons|on a|j'ai|a été|est|ont|c'est) (?:\S+ ){0,3}(?:décidé|choisi|convenu|opté|"
            r"validée?|approuvée?|rejetée?|abandonnée?|annulée?|retenue?)"
        ),
    ),
    (
        "decision",
        "utiliserons utiliser partons part gardons garde passons",
        (
            r"\b(?:nous utiliserons|nous allons utiliser|nous partons sur|on part sur|nous gardons|on garde|"
            r"nous passons à)\b"
        ),
    ),
    (
        "decision",
        (
            "decidido acordado elegido aprobado aprobada rechazado rechazada optado cancelado cancelada "
            "descartado descartada"
        ),
        (
            r"\b(?:hemos|han|he|ha|fue|está) (?:\S+ ){0,3}(?:decidido|acordado|elegido|aprobad[oa]|rechazad[oa]|"
            r"optado|cancelad[oa]|descartad[oa])\b"
        ),
    ),
    ("decision", "decidimos acordamos elegimos optamos usaremos decidió acordó cambiamos", ""),
    ("decision", "vamos quedamos", r"\bvamos a usar\b|\bnos quedamos con\b"),
    ("decision", "lock locked locking", r"\block(?:ed|ing)? in\b"),
    ("decision", "mind minds winner light", r"\bmade up (?:my|our) minds?\b|\bthe winner is\b|\bgreen light\b"),
    ("decision", "ahead", r"\b(?:go|going|went) ahead with\b"),
    ("decision", "consensus", ""),
    (
        "decision",
        "won't not aren't",
        (
            r"\bwe(?:'re| are)? (?:will not|won't|not going to|aren't going to) (?:\w+ )?(?:support|use|ship|"
            r"build|include|offer|add|migrate|keep|buy|hire|accept|allow|change|release|launch)\b"
        ),
    ),
    (
        "decision",
        "called named name title",
        r"\b(?:name|title) (?:\S+ ){0,5}(?:will be|is going to be)\b|\bwill be (?:called|named)\b",
    ),
    (
        "decision",
        "dropping keeping skipping switching postponing shipping replacing removing cutting retiring doing",
        (
            r"\bwe(?:'re| are) (?:now )?(?:dropping|keeping|skipping|switching|postponing|shipping|replacing|"
            r"removing|cutting|retiring|doing) (?:support|the|to|all|\S*[\d_])"
        ),
    ),
    ("decision", "it", r"\b\w+ it is[.!]?$"),
    ("decision", "voted", r"\bvoted (?:for|to|against)\b"),
    (
        "decision",
        "cancel postpone rename stick set switch make",
        (
            r"^(?:(?:nope|no|ok|okay|alright|right),? |please )?(?:(?:cancel|postpone|rename|stick with|set|"
            r"switch) (?:the|our|my|to|it|\S*[\d_])|make (?:the|it) .{1,40}\d)"
        ),
    ),
    (
        "decision",
        "verschieben reportons reporte aplazamos",
        r"\bwir verschieben\b|\bnous reportons\b|\bon reporte\b|\baplazamos\b",
    ),
    (
        "constraint",
        "not don't never always avoid only",
        (
            rf"{_CLAUSE}(?:please )?(?:do not|don't|never|always|avoid|only ever|only use) {_ORDER}|"
            rf"{_LATER_CLAUSE}(?:do not|don't|never) {_ORDER}"
        ),
    ),
    ("constraint", "circumstances", r"\bunder no circumstances\b"),
    (
        "constraint",
        "not never only always mustn't shouldn't shan't",
        rf"\b{_MODAL} (?:not|never|only|always) (?:be |have )?[a-z]{{2,}}|\b(?:mustn't|shan't)\b",
    ),
    (
        "constraint",
        "may",
        r"\bmay (?:not|only) (?:be \w+ed|exceed|use|contain|store|leave|access|run|change|call|write|read|send)\b",
    ),
    (
        "constraint",
        "cannot can't",
        (
            r"\b(?:cannot|can't) (?:exceed|be (?:changed|used|stored|shared|larger|more|longer|deleted)|leave "
            r"the|go (?:over|above|below))"
        ),
    ),
    ("constraint", "forbidden prohibited disallowed mandatory negotiable", ""),
    ("constraint", "allowed permitted", r"\bnot (?:be )?(?:allowed|permitted)\b|\bonly allowed\b"),
    ("constraint", "limits scope hard off", r"\boff[- ]limits\b|\bout of scope\b|\bhard (?:limit|cap|rule)\b"),
    ("constraint", "most least latest", rf"\bat (?:most|least|the latest),? {_NUMBER}"),
    (
        "constraint",
        "more less fewer later earlier longer larger higher",
        rf"\b(?:no|not) (?:more|less|fewer|later|earlier|longer|larger|smaller|higher) than {_NUMBER}",
    ),
    ("constraint", "exceed", rf"\bexceed {_NUMBER}"),
    (
        "constraint",
        "under below within above stay keep",
        rf"\b(?:stay|keep|kept|remain|be|must|fit|to)\b.{{0,60}}\b(?:under|below|within) {_NUMBER}",
    ),
    (
        "constraint",
        "limited capped restricted limit cap maximum minimum max min budget",
        (
            rf"\b(?:limited|capped|restricted) (?:to|at) |\b(?:limit|cap|maximum|minimum|max|min|budget)(?: "
            rf"\S{{1,40}}){{0,5}}? (?:is|of|at|to|stays at|=|:) {_NUMBER}"
        ),
    ),
    (
        "constraint",
        "nicht nie niemals keine keinen nur immer höchstens mindestens maximal",
        (
            r"\b(?:darf|dürfen|soll|sollen|muss|müssen|kann|können)\b.{0,80}\b(?:nicht|nie|niemals|"
            r"keine?[nmrs]?|nur|immer|höchstens|mindestens|maximal)\b"
        ),
    ),
    (
        "constraint",
        "niemals verboten höchstens mindestens maximal",
        r"\bniemals\b|\bverboten\b|\b(?:höchstens|mindestens|maximal) \d",
    ),
    ("constraint", "fall erlaubt", r"\bauf keinen Fall\b|\bnicht erlaubt\b"),
    (
        "constraint",
        "ne jamais interdit maximum moins plus n'utilisez",
        (
            r"\bne (?:doit|doivent|peut|peuvent|faut|jamais|pas) |\bil ne faut (?:pas|jamais)\b|"
            r"\binterdite?s?\b|\bne \w+ jamais\b|\bn'\w+ jamais\b|\bau (?:plus|moins|maximum) \d"
        ),
    ),
    (
        "constraint",
        "debe deben puede pueden hay nunca prohibido prohibida máximo mínimo",
        (
            r"\bno (?:debe|deben|se puede|se debe|hay que|puede|pueden) |\bnunca\b|\bprohibid[oa]s?\b|\bcomo "
            r"(?:máximo|mínimo)\b"
        ),
    ),
    (
        "constraint",
        "now forward immediately sofort künftig désormais maintenant ahora adelante",
        (
            r"\bfrom now on\b|\bgoing forward\b|\beffective immediately\b|\bab sofort\b|\bkünftig\b|"
            r"\bdésormais\b|\bà partir de maintenant\b|\ba partir de ahora\b|\bde ahora en adelante\b"
        ),
    ),
    (
        "constraint",
        "can't cannot",
        (
            r"\b(?:you|we|they|nobody|no one) (?:can't|cannot) (?:touch|spend|change|delete|share|store|send|"
            r"contact|deploy|go over|exceed|modify|publish|access|install|break|miss)\b"
        ),
    ),
    (
        "constraint",
        "nothing nobody one none",
        r"\b(?:nothing|nobody|no one|none of \w+) (?:may|must|should|is to|is allowed)\b",
    ),
    ("constraint", "no", r"^no [a-z]+\b(?!,).{0,60}\b(?:before|until|without|unless)\b"),
    ("constraint", "only", r"\bonly (?-i:[A-Z])\w+ (?:can|may|is allowed|should)\b"),
    (
        "constraint",
        "please use",
        (
            r"^(?:please )?use .{1,60}\b(?:not|only)\b|\bplease (?:always |only )?(?:use|keep|write|format|name|"
            r"answer|reply|respond)\b"
        ),
    ),
    ("constraint", "bitte", r"\bbitte (?:keine?[nm]?|nicht|nur|niemals)\b"),
    ("constraint", "pas jamais plus", r"\b(?:ne |n')\w+ez (?:pas|jamais|plus)\b"),
    (
        "constraint",
        "toques toque uses use borres borre cambies cambie envíes envíe publiques hagas haga despliegues ejecutes",
        r"^no (?:toques?|uses?|borres?|cambies?|envíes?|publiques?|hagas?|despliegues?|ejecutes?)\b (?!of\b)",
    ),
    ("constraint", "most least", r"\d.{0,30}\bat (?:the )?(?:most|least)\b"),
    ("constraint", "budget presupuesto", r"\b(?:budget|presupuesto)\b.{0,40}\d"),
    ("constraint", "ohne", r"\bohne \w+.{0,60}\b(?:nichts|kein\w*|nicht)\b"),
    ("constraint", "nothing nobody", r"\b(?:nothing|nobody|no one)\b.{0,60}\b(?:without|until|unless)\b"),
    ("constraint", "siempre plafonné plafonnée", ""),
    (
        "owner",
        "owned assigned responsible charge accountable ownership assignee",
        r"\b(?:owned by|assigned to|responsible for|in charge of|accountable for|takes? ownership)\b",
    ),
    (
        "owner",
        "owner lead contact reviewer approver maintainer",
        (
            r"\bis (?:the|our) (?:\w+ ){0,3}(?:owner|lead|point of contact|reviewer|approver|maintainer)\b|"
            r"\bowner (?:is|of)\b"
        ),
    ),
    ("owner", "owns own", r"\b(?-i:[A-Z])\w+ (?:owns|will own)\b"),
    ("owner", "takes over", r"\b(?-i:[A-Z])\w+ (?:takes|will take|took) over\b"),
    (
        "owner",
        "verantwortlich zuständig übernimmt kümmert",
        r"\b(?:verantwortlich|zuständig)\b|\bübernimmt\b|\bkümmert sich um\b",
    ),
    (
        "owner",
        "responsable charge s'occupe chargé chargée attribué attribuée",
        r"\bresponsable (?:d|est)|\ben charge d|\bs'occupe d|\bchargée? d|\battribuée? à\b",
    ),
    (
        "owner",
        "encargado encargada encarga cargo asignado asignada",
        r"\bencargad[oa] de\b|\bse encarga de\b|\ba cargo de\b|\basignad[oa] a\b",
    ),
    (
        "owner",
        "lead leads leading driving handling handles",
        r"\b(?-i:[A-Z])\w+ (?:will (?:take the )?lead|leads|is leading|is driving|is handling|handles)\b",
    ),
    (
        "owner",
        "got area care after",
        (
            r"\b(?-i:[A-Z])\w+(?:'s| has) got the\b|\bit's (?:his|her|their) area\b|\b(?-i:[A-Z])\w+ (?:takes "
            r"care of|looks after)\b"
        ),
    ),
    ("owner", "gère lleva ocupa gestiona", r"\b(?-i:[A-Z])\w+ (?:qui )?(?:gère|lleva|se ocupa de|gestiona)\b"),
    (
        "owner",
        "runs takes manages macht leitet betreut",
        (
            r"\b(?!She|He|It|They|We|This|That|Who|Which|What|Only)(?-i:[A-Z])\w+ (?:runs|takes|manages|macht|"
            r"leitet|betreut) (?:the|die|den|das)\b"
        ),
    ),
    (
        "owner",
        "on-call engineer contact reviewer approver",
        r"\bon-call\b.{0,30}\bis\b|\b(?:engineer|contact|reviewer|approver) (?:this week |for .{1,30} )?is (?-i:[A-Z])",
    ),
    (
        "commitment",
        "will shall i'll we'll he'll she'll i'm they'll promised promise committed volunteered",
        (
            rf"\b(?:i|we|they|he|she|(?-i:[A-Z])[a-z]+)(?:'ll| will| shall| am going to|'m going to| promised? "
            rf"to| commit(?:ted)? to| volunteered to) (?:(?:also|then|personally|definitely|not) "
            rf")?(?:{_ACTIONS})\b"
        ),
    ),
    ("commitment", "action promise", r"\baction items?\b|\bi promise (?:to|that|you|i)\b"),
    (
        "commitment",
        "werde werden schicke schicken liefere liefern kümmere kümmern übernehme übernehmen sende senden erstelle",
        (
            rf"\b(?:ich|wir) (?:werden?|schicken?|liefern?|liefere|kümmern?|kümmere|übernehmen?|senden?|"
            rf"erstellen?)\b(?=.{{0,120}}(?:bis|\d|{_DAYS}|darum))"
        ),
    ),
    (
        "commitment",
        "verspreche zugesagt engage engageons",
        r"\bverspreche\b|\bzugesagt\b|\bm'engage\b|\bnous nous engageons\b",
    ),
    (
        "commitment",
        "m'engage vais livrerai ferai préparerai m'occupe allons j'enverrai",
        (
            rf"\b(?:je m'engage|je (?:vais|livrerai|ferai|préparerai|m'occupe)|nous allons|"
            rf"j'enverrai)\b(?=.{{0,120}}(?:avant|d'ici|\d|{_DAYS}))"
        ),
    ),
    ("commitment", "comprometo comprometemos enviaré prepararé entregaré", ""),
    (
        "commitment",
        "i'll we'll will",
        (
            rf"\b(?:i|we)(?:'ll| will) (?:have|get|do|take|bring|make|put|add|look|be done)\b.{{0,60}}\b(?:by |"
            rf"before |until )?(?:{_WHEN}|today|next week)"
        ),
    ),
    ("commitment", "you'll leave", r"\byou'll (?:get|have|receive) (?:the|a|an|your|it)\b|\bleave it (?:with|to) me\b"),
    ("commitment", "promised", r"\b(?:i|we|he|she|they|(?-i:[A-Z])\w+)(?:'ve| have| has)? promised\b"),
    ("commitment", "going", rf"\b(?-i:[A-Z])\w+ is going to (?:{_ACTIONS}|talk to|speak to|look into|check)\b"),
    ("commitment", "owe", r"\bi owe you\b"),
    ("commitment", "can i'm", r"\bi can take (?:the|that|over)\b|\bi'm on it\b"),
    ("deadline", "deadline", ""),
    (
        "deadline",
        "due later expires cutoff freeze launch release live",
        (
            r"\bdue (?:by|on|date|at|in)\b|\b(?:is|are) due\b|\bno later than\b|\bexpires? (?:on|at|in)\b|"
            r"\bcut-?off (?:date|time)\b|\b(?:freeze|launch|go-?live|release)(?: date)? (?:is|on|starts) (?:\w+ "
            r")?\S*\d"
        ),
    ),
    ("deadline", "by until before till", rf"\b(?:by|until|before|till) {_WHEN}"),
    ("deadline", "frist spätestens stichtag fällig abgabetermin échéance", ""),
    ("deadline", "bis", rf"\bbis (?:zum |ende ){{0,2}}{_WHEN}"),
    (
        "deadline",
        "limite tard avant d'ici",
        rf"\bdate limite\b|\bau plus tard\b|\bd'ici (?:le|au|la|{_DAYS}|\d)|\bavant (?:le \d|la fin|{_DAYS})",
    ),
    (
        "deadline",
        "límite tardar antes plazo vence",
        rf"\bfecha límite\b|\ba más tardar\b|\bplazo\b|\bvence\b|\bantes del? (?:\w+ )?{_WHEN}",
    ),
    ("deadline", "eod eow cob", ""),
    (
        "deadline",
        "freeze launch release live",
        r"\b(?:freeze|launch|go-?live|release)(?: date)? (?:is|starts|begins|ends)(?: on)?(?: the)? \S*\d",
    ),
    ("deadline", "closes ends expires opens", rf"\b(?:closes|ends|expires|opens)(?: on| at)? {_WHEN}"),
    ("deadline", "para pour", rf"\bpara el (?:{_DAYS}|\d)|\bpour (?:{_DAYS}|le \d)"),
    ("deadline", "due", rf"^due \w|\bdue (?:{_DAYS}|tomorrow|today)\b"),
    ("deadline", "goes ships launches lands", r"\b(?:goes out|goes live|ships|launches|lands) (?:on|in|next)\b"),
    ("deadline", "latest", r"\blatest (?:possible )?date\b"),
    (
        "deadline",
        "expect expects need needs want wants",
        r"\b(?:expects?|needs?|wants?) .{1,60}\bin (?:\d+|one|two|three|four|six) (?:days|weeks|hours|months)\b",
    ),
    (
        "requirement",
        "must shall",
        (
            r"\b(?<!you )(?:must|shall) (?!have \w+(?:ed|en|ne|lt|de)\b|feel|really|admit|say|we\b|i\b|be (?:a|an|"
            r"such|so|quite|really|very|great|amazing|awesome|incredible|nice|hard|tough|fun|exciting|proud|"
            r"wonderful|one|kidding|joking)\b)[a-z]+"
        ),
    ),
    (
        "requirement",
        "requires require required requirement requirements acceptance",
        (
            r"\brequires? (?!a lot)\S|\brequired (?:to|for|by)\b|\b(?:is|are) required\b|\brequirements? (?:is|"
            r"are|for)\b|\bacceptance criteri"
        ),
    ),
    (
        "requirement",
        "needs has",
        (
            r"\b(?:it|this|that|which|\w{4,}) (?:needs|has) to (?:be|support|have|work|handle|run|include|"
            r"contain|return|allow|fit|comply|show|accept|stay|match|pass)\b"
        ),
    ),
    (
        "requirement",
        "sure ensure expected",
        (
            r"\b(?:make sure|ensure) (?:that )?(?:the|all|every|each|no)\b|\b(?:is|are) expected to (?:be|"
            r"support|handle|run|return|work|have)\b"
        ),
    ),
    (
        "requirement",
        "muss müssen erforderlich zwingend voraussetzung",
        r"\b(?:muss|müssen)\b.{3,}\b\w+(?:en|ern|eln|t)\b|\berforderlich\b|\bzwingend\b|\bvoraussetzung\b",
    ),
    (
        "requirement",
        "doit doivent faut obligatoire requis exige",
        r"\b(?:doit|doivent) \w+|\bil faut\b|\bobligatoire\b|\b(?:est|sont) requis|\bexige\b",
    ),
    (
        "requirement",
        "debe deben obligatorio requiere necesario tiene tienen",
        r"\b(?:debe|deben) \w+|\bes (?:obligatorio|necesario)\b|\b(?:se )?requiere\b|\btienen? que\b",
    ),
    (
        "requirement",
        "should",
        (
            r"\b(?:users?|customers?|clients?|system|service|app|api|page|report|output|\w+er) should (?:be "
            r"able to|support|work|return|show|have|allow|handle|accept|include|contain)\b"
        ),
    ),
    ("requirement", "need", r"\bwe need (?:support for|an? [\w-]+ (?:that|which|for|with))\b"),
    (
        "requirement",
        "wants want",
        (
            r"\b(?:customer|client|user|boss|management|legal|marketing|stakeholder|auditor)s? wants? (?!to "
            r"(?:know|see|go)\b)"
        ),
    ),
    ("requirement", "necesitamos", ""),
    (
        "requirement",
        "should supposed",
        r"\bit should (?:also )?(?:work|support|run|handle|return|allow) |\b(?:is|are) supposed to (?!be\b)",
    ),
    ("requirement", "must-have", ""),
    ("preference", "prefer prefers preferred preference preferences preferably favourite favorite", ""),
    ("preference", "rather", r"\b(?:i|we|he|she|they)(?:'d| would) (?:much |really )?rather\b"),
    (
        "preference",
        "allergic vegan vegetarian go-to call",
        r"\ballergic to\b|\bi'm (?:a )?(?:vegan|vegetarian)\b|\bmy go-to\b|\b(?:please|just) call me\b",
    ),
    (
        "preference",
        "like want",
        r"\bi (?:really )?(?:don't|do not) (?:like|want) (?:you to|any|to be|emojis?|long|when)\b",
    ),
    ("preference", "bevorzuge bevorzugt bevorzugen lieber liebsten", ""),
    ("preference", "préfère préfèrent préférons préférerais préférence", ""),
    ("preference", "prefiero prefiere prefieren preferimos preferiría preferencia", ""),
    ("preference", "like want", r"\bi (?:really )?(?:like|want) (?:my|all|every)\b"),
    ("preference", "hate dislike detest stand", r"\bi (?:really )?(?:hate|can't stand|dislike|detest)\b"),
    ("preference", "call", r"\bcall me (?-i:[A-Z])"),
    ("preference", "wants", r"\b(?:he|she|(?-i:[A-Z])\w+) (?:always )?wants (?!to\b)"),
    (
        "preference",
        "usually normally typically",
        r"\bi (?:usually|normally|typically) (?:fly|book|use|work|order|take|drink|eat|stay|travel)\b",
    ),
    ("preference", "love appreciate", r"\b(?:i'd|i would) (?:love|appreciate) it if\b"),
    (
        "preference",
        "english german french spanish deutsch englisch französisch spanisch français anglais español inglés",
        r"\b(?:answer|repl|respond|write|response|antwort|répon|respuesta|schreib)\w*\b.{0,40}\b(?:in|auf|en) \w+",
    ),
)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
# A statement that is only considered: if we decide, whether it is approved.
_SUPPOSED = re.compile(
    r"\b(?:if|whether|unless|until|once|could|might|would|wenn|ob|falls|si|cuando)\b[^,.;:]{0,24}\Z", re.IGNORECASE
)
_SUPPOSABLE = frozenset({"decision", "owner", "commitment"})
_SUPPOSED_CHARACTERS = 40


class _Row(NamedTuple):
    """A pattern of a kind; ``order`` is its precedence."""

    order: int
    kind: StatementKind
    pattern: re.Pattern[str] | None


@cache
def _rows_by_word() -> dict[str, tuple[_Row, ...]]:
    rows: dict[str, list[_Row]] = {}
    for order, (kind, listed, pattern) in enumerate(_ROWS):
        compiled = re.compile(pattern.replace("'", "['\u2019]"), re.IGNORECASE) if pattern else None
        for word in listed.split():
            rows.setdefault(word, []).append(_Row(order, kind, compiled))
    return {word: tuple(of_word) for word, of_word in rows.items()}


def words_of(text: str) -> set[str]:
    """Return the distinct words of a text in lower case, as the rows name them."""
    return set(_WORD.findall(text.casefold().replace("\u2019", "'")))


@cache
def statement_words() -> frozenset[str]:
    """Return the words without one of which no text makes a statement."""
    return frozenset(_rows_by_word())


def statement_kind(sentence: str, words: Collection[str]) -> StatementKind | None:
    """Return the kind of statement that a sentence makes, None for most; ``words``: its ``words_of``, or some."""
    rows_by_word = _rows_by_word()
    rows = sorted({row for word in words for row in rows_by_word.get(word, ())})
    return next((row.kind for row in rows if _makes_statement(sentence, row)), None)


def _makes_statement(sentence: str, row: _Row) -> bool:
    if row.pattern is None:
        return True
    match = row.pattern.search(sentence)
    if match is None or row.kind not in _SUPPOSABLE:
        return match is not None
    return _SUPPOSED.search(sentence, max(0, match.start() - _SUPPOSED_CHARACTERS), match.start()) is None
