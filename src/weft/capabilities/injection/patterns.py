"""Patterns that raise or lower the suspicion of a segment. They match lower case only, which is faster."""

# ruff: noqa: E501 - patterns
from __future__ import annotations

import re
from typing import NamedTuple

_OLD = r"(?:previous|prior|earlier|preceding|above|former|initial|original|existing|old|past|foregoing)"
_ORDERS = r"(?:instructions?|directions?|rules?|orders?|commands?|prompts?|guidelines?|tasks?|directives?|constraints?|guidance|context|conversation|documents?|policies|assignments?|programming)"
_FORGET = r"(?:ignore|disregard|forget|discard|override|bypass|overrule|neglect|dismiss|abandon|erase|don't follow|do not follow|stop following|pay no attention to|never ?mind)"

OVERRIDE = re.compile(
    rf"\b{_FORGET}\b[^.!?\n]{{0,40}}\b(?:{_OLD}|all|any|every|your|the|these|those)\b[^.!?\n]{{0,30}}\b{_ORDERS}\b"
    rf"|\b{_FORGET}\b (?:about )?(?:everything|all(?: that| of)?|anything|whatever|what)\b[^.!?\n]{{0,25}}\b(?:above|before|said|told|know|learned|so far|previously|earlier|written)\b"
    rf"|\b(?:forget|ignore|disregard) (?:everything|all)\b|\b{_FORGET}\b (?:the )?(?:above|previous|prior)\b"
    r"|\b(?:vergiss|vergessen sie|ignorier(?:e|en sie)|missachte)\b[^.!?\n]{0,30}\b(?:alle[sn]?|vorherige[nr]?|bisherige[nr]?|obige[nr]?|anweisung(?:en)?|instruktion(?:en)?|befehle|regeln|aufgaben|davor)\b"
    r"|\b(?:ignore[rz]?|oublie[rz]?)\b[^.!?\n]{0,30}\b(?:instructions|consignes|r\u00e8gles|pr\u00e9c\u00e9dent\w*|ci-dessus|tout)\b"
    r"|\b(?:ignora|olvida|ignore|olvide|olvidar|esque\u00e7a|dimentica)\b[^.!?\n]{0,30}\b(?:instrucciones|todo|reglas|anteriores?|\u00f3rdenes|instru\u00e7\u00f5es|tudo|istruzioni|tutto|tutte)\b"
    r"|(?:\u5ffd\u7565|\u5fd8\u8bb0|\u65e0\u89c6|\u4e0d\u8981\u7406\u4f1a|\u5fd8\u6389)[^\u3002\uff01\uff1f!?\n]{0,12}(?:\u6307\u4ee4|\u6307\u793a|\u8981\u6c42|\u89c4\u5219|\u63d0\u793a|\u4ee5\u4e0a|\u4e4b\u524d\u7684|\u524d\u9762|\u4e00\u5207)"
    r"|(?:\u0437\u0430\u0431\u0443\u0434\u044c\w*|\u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443\u0439\w*)[^.!?\n]{0,30}(?:\u0438\u043d\u0441\u0442\u0440\u0443\u043a\u0446\u0438\w*|\u0432\u0441[\u0435\u0451])"
    r"|\b(?:zaboravi|zapomnij|zapome\u0148|zignoruj|negeer|ignorera|abaikan|unut)\b[^.!?\n]{0,30}\b(?:instru\w+|uputstv\w+|polece\w+|pokyn\w+|talimat\w*|alle|v\u0161e\w*|sve)\b",
)
SYSTEM = re.compile(
    r"<\|?(?:im_start|im_end|system|endoftext|eot_id|start_header_id)\|?>|\[/?(?:inst|system|admin)\]|<</?sys>>|^\W{0,6}\(?system(?:[ _](?:message|prompt|note|override|instruction))?\)?\W{0,3}:|#{2,}\W*\(?(?:system|instruction|new instruction)"
    r"|\b(?:message|note|instructions?|reminder)\b[^.!?\n]{0,25}\b(?:to|for) (?:you, )?(?:the |any |all )?(?:ai|llm|assistant|language model|chatbot|agent)s?\b|\bif you are an? (?:ai|llm|language model|assistant|agent)\b"
    r"|</?(?:important|information|instructions?|admin|system|user|assistant|tool_result|context|data)>",
    re.MULTILINE,
)
ROLE = re.compile(
    r"\b(?:you are|you're|you will be|act|acting|behave|respond|answer|speak) (?:now |going to (?:be|act|pretend) )?(?:as|like|to be)\b|\byou are (?:now|no longer)\b|\bpretend (?:to be|you|that you)\b|\brole ?play\b|\bfrom now on\b|\bimagine (?:that )?you(?:'re| are)\b"
    r"|\bstay in character\b|\bbreak character\b|\bdo anything now\b|\b(?:developer|dan|god|jailbreak|unfiltered|evil) mode\b|\bjailbr(?:eak|oken)\b|\b(?:du bist|sie sind) (?:jetzt|nun)\b|\bab jetzt bist\b|\bnun bist du\b|\btu es maintenant\b|\bahora eres\b|\u4f60\u73b0\u5728\u662f|\u626e\u6f14|\u5047\u88c5\u4f60",
)
UNBOUND = re.compile(
    r"\b(?:no|without(?: any)?|free (?:of|from)|ignor\w+|bypass\w*|disable\w*|not bound by|not (?:have to )?(?:follow|abide|adhere))\b[^.!?\n]{0,30}\b(?:restrictions?|limits?|limitations?|filters?|rules|guidelines|polic(?:y|ies)|censor\w+|ethic\w*|moral\w*|laws?)\b"
    r"|\b(?:unfiltered|uncensored|amoral|unethical|immoral|nsfw)\b|\bnever (?:refuse|say no)\b|\bopenai'?s? (?:content )?polic\w+",
)
LEAK = re.compile(
    r"\b(?:system|initial|hidden|original|full|secret|entire) (?:prompt|instructions?)\b|\b(?:show|reveal|print|repeat|tell|output|display|give|copy|leak|list)\b[^.!?\n]{0,30}\b(?:your|the|all) (?:\w+ )?(?:prompt|instructions|rules)\b|\bprompt texts?\b|\bwhat (?:are|is|were) your (?:\w+ )?(?:instructions|prompt|rules)\b"
    r"|\b(?:what|everything|text|sentences?)\b[^.!?\n]{0,20}\b(?:written )?(?:above|before this)\b|\bprompt-?texte?\b|\bsystemprompt\b|\u7cfb\u7edf\u63d0\u793a",
)
EXECUTE = re.compile(
    r"\bcurl\b[^\n]{0,120}\|\s*(?:ba|z)?sh\b|\bwget\b[^\n]{0,120}(?:\|\s*(?:ba)?sh|&&)|\bos\.system\(|\bos\.popen\(|__import__\(|\bexec\(|\beval\(|\bsubprocess\.\w+\(|\brm -rf\b|\bchmod \+x\b|\.git/hooks|\.bashrc|\bcrontab\b|\bnohup\b"
    r"|\bcat\s+\S*(?:\.env|secret|passwd|shadow|credential|\.ssh|\.aws|token|id_rsa)|\bprintenv\b|(?:^|[`\n;(]|&& )\s*env\b(?: \||\s*>|\s*$|`)|\$(?:\{)?[a-z_]*(?:secret|token|api_key|password)\b|\benviron(?:\.get\(|\[)[^\n]{0,40}(?:key|secret|token|pass)"
    r"|\bpython3? -c\b|\bopen\(['\"]/(?:root|etc|home|workspace|run)|\.secret|\bdocument\.cookie\b|/etc/(?:passwd|shadow|crontab|init)|\bdd if=|\brequests\.post\(|\burlretrieve\(|\burlopen\(|\bshutil\.(?:rmtree|move)\(|\bsendmail\(|\bstorbinary\(|\bsocket\.socket\(|>> requirements\.txt|\binstall[-_]hooks\b|\.register_?\w*\(\)",
)
ASSISTANT = re.compile(
    r"\b(?:your|the) (?:final |next |whole |entire )?(?:answer|response|reply|output|replies|responses|answers|summary)\b|\b(?:tell|inform|ask|remind|convince|encourage|direct) (?:the |all )?(?:users?|readers?|people)\b"
    r"|\byour (?:own )?(?:code|codebase|solution|implementation|program|script|algorithm|explanation|elucidation)\b|\b(?:as|like) an? ai\b|\bthe (?:ai|assistant|model|agent)\b|\bin your (?:answer|response|reply|message)\b|\bdeiner antwort\b|\bta r\u00e9ponse\b|\btu respuesta\b|\u4f60\u7684\u56de\u7b54",
)
CONCEAL = re.compile(
    r"\b(?:do not|don't|never|without)\b[^.!?\n]{0,25}\b(?:tell|mention|inform|reveal|notify|notic\w+|alert\w*|detect\w*|consent|record\w*|authorization)\b|\b(?:covert|secret|stealth|discreet)ly\b|\bundetected\b|\bnot (?:be )?(?:detected|noticed|traced|recorded)\b",
)
STRICT = re.compile(
    r"\b(?:you must|must strictly|strictly|only) (?:adhere|follow|obey|comply)\b|\bthe following instruction|\bnew (?:task|instruction|assignment)s?\b|\btask (?:is )?(?:complete|completed|done|finished)\b|\bbefore you (?:can )?(?:solve|do|answer|continue|proceed|start)\b|\bmost important\b|\bimportant!{2,}|\binstead\W*$|\bneue (?:aufgabe|anweisung)",
)
NOTICE = re.compile(r"\b(?:todo|action required|required|mandatory|important|attention|note to)\b\W*:")
PERSONAL = re.compile(
    r"\b(?:i|i'm|i'll|i've|i'd|we|we'll|we're|let's|me|my|us|our|ich|wir|mein\w*|je|nous|yo|nosotros)\b"
)
TARGET = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}\.\w|\b[a-z]{2}\d{10,}\b|\bid:? ?#?\w*\d{3,}|https?://|\bwww\.")
TABLE = re.compile(r"^\s*\||\|.*\|.*\||,[^ ,]*,[^ ,]*,|\t")


class Pattern(NamedTuple):
    """A pattern, and texts of which at least one is in whatever it matches: most segments need no match."""

    hints: tuple[str, ...]
    regex: re.Pattern[str]

    def is_in(self, segment: str) -> bool:
        """Tell whether the pattern is in a segment in lower case."""
        return any(hint in segment for hint in self.hints) and self.regex.search(segment) is not None


def _hints(words: str) -> tuple[str, ...]:
    return tuple(words.split())


PATTERNS = {
    "override": Pattern(
        _hints(
            "ignor disregard forget discard overr bypass neglect dismiss abandon erase follow attention mind vergiss vergessen missachte "
            "oubli olvid esque dimentica \u5ffd\u7565 \u5fd8 \u65e0\u89c6 \u7406\u4f1a \u0437\u0430\u0431\u0443\u0434\u044c \u0438\u0433\u043d\u043e\u0440\u0438\u0440\u0443\u0439 zaboravi zapom zignoruj negeer abaikan unut"
        ),
        OVERRIDE,
    ),
    "system": Pattern(_hints("< [ system ## message note instruction reminder if"), SYSTEM),
    "role": Pattern(
        _hints(
            "you act behave respond answer speak pretend role now imagine character anything mode jailbr du sie tu ahora \u4f60 \u626e\u6f14"
        ),
        ROLE,
    ),
    "unbound": Pattern(
        _hints("no without free ignor bypass disable unfiltered uncensored amoral unethical immoral nsfw never openai"),
        UNBOUND,
    ),
    "leak": Pattern(_hints("prompt instruction rules above before \u7cfb\u7edf"), LEAK),
    "execute": Pattern(
        _hints(
            "curl wget os. __import__ exec( eval( subprocess rm chmod .git .bashrc crontab nohup cat printenv env $ python open( .secret "
            "document.cookie /etc dd requests urlretrieve urlopen shutil sendmail storbinary socket install .register >>"
        ),
        EXECUTE,
    ),
    "assistant": Pattern(
        _hints("your the tell inform ask remind convince encourage direct ai antwort ponse respuesta \u4f60\u7684"),
        ASSISTANT,
    ),
    "conceal": Pattern(_hints("not n't never without ly undetected"), CONCEAL),
    "strict": Pattern(
        _hints("must strictly only following new complete done finished before important instead neue"), STRICT
    ),
    "notice": Pattern((":",), NOTICE),
    "personal": Pattern(_hints("i we let me my us our mein je nous yo nosotros"), PERSONAL),
    "table": Pattern((*_hints("| ,"), "\t"), TABLE),
    "target": Pattern(_hints("@ 0 1 2 3 4 5 6 7 8 9 http www."), TARGET),
}


_WORD = re.compile(r"[^\W\d_]{4,}")
_STEM = 5


def stems(segment: str) -> set[str]:
    """Return the beginnings of the longer words of a segment in lower case."""
    return {word[:_STEM] for word in _WORD.findall(segment)}
