#!/usr/bin/env python3
"""Writes tests/golden/templates/cases.jsonl: small templates and what python's jinja2 makes of them.

Each line is {"name", "template", "expected"} or, where jinja2 raises, {"name", "template",
"refused": true}. All share the variables in VARIABLES, written as the first line. Run it after adding
a case; jinja2 3.1 set up as transformers does it is the judge, so no expected text is typed by hand.
"""

import json
import sys
from pathlib import Path

from check_templates import make_environment

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi <there> & 'you' \"all\"\n"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "args": {"b": 1, "a": [1, 2]}}]},
        {"role": "user", "content": "Gr\u00fc\u00dfe, \u65e5\u672c \U0001F600"},
    ],
    "d": {"b": 1, "a": "x", "C": None, "items": "own", "n": {"k": [10, 20, 30]}},
    "xs": [3, 1, 2, 3, 10],
    "words": ["pear", "Apple", "fig", "apple", "Fig"],
    "people": [
        {"name": "Zoe", "age": 31, "city": {"zip": "1"}},
        {"name": "adam", "age": 7, "city": {"zip": "2"}},
        {"name": "Bob", "age": 31},
    ],
    "s": "Hello, World",
    "u": "Stra\u00dfe \u00c9COLE \u01c6 \ufb01 \u0130 \u0391\u03a3 \u65e5\u672c\u8a9e",
    "empty": "",
    "nothing": None,
    "yes": True,
    "no": False,
    "i": 7,
    "f": 2.5,
    "floats": [0.1, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 1.5e300, -0.0, 3.0, 2.0 / 3, 100.0, 5e-324],
    "odd": "a\tb\\c'd\"e\x00\x7f\u200b\u00e9\u2028\U0001F600\n",
    "lines": "one\ntwo\r\nthree\n\nfour\x0bfive",
    "html": "<a href='x'>1 & 2</a>",
    "nested": [[1, [2, [3]]], {"a": {"b": {"c": "deep"}}}],
    "mixed": [1, "a", None, True, 2.5, [1], {"k": "v"}],
}

CASES = {}


def group(name, *templates):
    for number, template in enumerate(templates, 1):
        CASES[f"{name} {number}"] = template


group(
    "literals",
    "{{ 1 }} {{ -1 }} {{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1.50 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1_0.5 }}",
    "{{ 'a' }}{{ \"b\" }}{{ 'it''s' }}{{ 'x' \"y\" }}",
    r"{{ 'a\nb\t\\ \' \" \x41 \u00e9 \U0001F600 \101 \q' }}",
    "{{ 'line\\\ncontinued' }}",
    "{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}",
    "{{ [1, 'a', none, true, 2.5] }} {{ [] }} {{ [1,] }} {{ [[1], [2]] }}",
    "{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }}",
    "{{ {'a': 1, 'b': [1, 2], 3: 'c', none: true} }} {{ {} }} {{ {'a': 1,} }}",
    "{{ {'a': 1, 'b': 2, 'a': 3} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}",
    "{{ {[1]: 2} }}", "{{ {{}: 2} }}", "{{ '\\ud800' }}", "{{ '\\x4' }}",
    "{{ 'Gr\u00fc\u00dfe \u65e5\u672c' }}{# c #}{{ \"\\u65e5\" }}",
    "{{ {'a': {'b': {'c': 1}}}.a.b.c }}", "{{ 007 }}", "{{ 00 }}",
)
group(
    "arithmetic",
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
    "{{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2.5 * 2 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e308 * 10 }}",
    "{{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ 'ab' * -1 }}| {{ [1] + [2] }} {{ [1, 2] * 2 }} {{ (1,) + (2,) }}",
    "{{ true + true }} {{ -true }} {{ +true }} {{ 3 - false }} {{ 1.5 + true }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' + 1 }}",
    "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ missing + 1 }}", "{{ -'a' }}", "{{ d + d }}", "{{ 'a' - 'b' }}",
    "{{ 0.1 + 0.2 }} {{ 1 - 0.9 }} {{ 10 ** 15 }} {{ 10.0 ** 16 }} {{ 1 / 3 }} {{ 3.0 }} {{ 1e22 }} {{ 1e-7 }}",
    "{% for x in floats %}{{ x }} {% endfor %}{{ floats }}",
    "{{ - 5 | abs }} {{ -5|abs }} {{ (-5)|abs }} {{ - - 5 }} {{ not not 5 }}",
    "{{ 1 ~ 2 ~ 'a' ~ none ~ missing ~ [1] }} {{ 1 + 2 ~ 3 }} {{ 'a' ~ 1 * 2 }}",
)
group(
    "comparison",
    "{{ 1 < 2 }} {{ 2 <= 2 }} {{ 1 == 1.0 }} {{ 1 != 2 }} {{ 'a' < 'b' }} {{ 'a' == 'a' }} {{ [1, 2] < [1, 3] }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 3 > 2 >= 2 != 1 }} {{ 1 == 1 == 1 }}",
    "{{ true == 1 }} {{ none == none }} {{ none == false }} {{ '' == false }} {{ [] == () }} {{ {'a': 1} == {'a': 1.0} }}",
    "{{ missing == missing2 }} {{ missing == none }} {{ missing != 1 }}",
    "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1, [2]] == [1, [2]] }} {{ '\u00e9' > 'z' }}",
    "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ missing < 1 }}", "{{ d < d }}", "{{ [1] < (1,) }}", "{{ [1] < ['a'] }}",
    "{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'b' in d }} {{ 'zz' in d }} {{ 1 in missing }}",
    "{{ 1.0 in [1] }} {{ none in [none] }} {{ [1] in [[1]] }} {{ not 1 in [1] }} {{ 1 in (1, 2) }} {{ 2 in range(3) }}",
    "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ 1 in none }}", "{{ [1] in d }}",
    "{{ 'a' in d and 'b' in d or false }} {{ 'x' if 'a' not in d else 'y' }}",
)
group(
    "logic",
    "{{ true and false }} {{ true or false }} {{ not true }} {{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or 'x' }} {{ '' or none }} {{ none or missing or 5 }}",
    "{{ not 1 == 2 }} {{ not (1 == 1) }} {{ 1 == 1 and not 2 == 3 }} {{ false or not false and true }}",
    "{{ missing and missing.x }}|{{ true or missing.x.y }}",
    "{{ 'a' if yes }} {{ 'a' if no }}|{{ 'a' if no else 'b' }} {{ 'a' if no else 'b' if no else 'c' }} {{ ('a' if no) is defined }}",
    "{{ 1 if yes else 2 + 3 }} {{ (1 if yes else 2) + 3 }} {{ [1 if no else 2, 3] }}",
    "{{ ([] or {}) or 'x' }} {{ 0.0 or 'zero' }} {{ '0' and 'str' }} {{ range(0) or 'empty' }}",
)
group(
    "access",
    "{{ d.b }} {{ d['b'] }} {{ d.n.k[1] }} {{ d['n']['k'][-1] }} {{ d.n.k.0 }} {{ xs.1 }} {{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }}",
    "{{ d.zz }}|{{ d['zz'] }}|{{ xs[99] }}|{{ s[99] }}|{{ d.C }}|{{ xs['a'] }}|{{ 5['a'] }}|{{ none.x }}",
    "{{ d.zz.y }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ d.zz() }}", "{{ s.nosuch() }}",
    "{{ d['items'] }} {{ d.items is defined }} {{ d.items is string }} {{ d.items is callable }} {{ d.items() | list }}",
    "{{ s[0] }}{{ s[-1] }}{{ u[5] }} {{ u[-1] }} {{ 'abc'[1] }} {{ [1,2][0] }} {{ {'a': 1}['a'] }} {{ 'abc'['upper']() }}",
    "{{ xs[1:3] }} {{ xs[:2] }} {{ xs[2:] }} {{ xs[:-1] }} {{ xs[::2] }} {{ xs[::-1] }} {{ xs[3:1] }} {{ xs[-2:] }} {{ xs[10:] }} {{ xs[4:0:-2] }} {{ xs[:] }}",
    "{{ s[1:3] }} {{ s[::-1] }} {{ s[-5:] }} {{ u[2:8] }} {{ u[::-2] }} {{ s[:100] }} {{ s[100:] }}| {{ (1, 2, 3)[1:] }} {{ range(5)[1:3] }}",
    "{{ xs[::0] }}", "{{ xs['a':] }}", "{{ missing[1:] }}", "{{ d[1:] is undefined }}", "{{ d[none] is defined }} {{ {none: 1}[none] }}",
    "{{ d.__class__ }}|{{ s.__class__ }}|{{ xs.__len__ }}|{{ ''.__class__.__mro__ }}", "{{ d.__class__ is defined }}",
    "{{ xs.append(1) }}", "{{ d.update({'x': 1}) }}", "{{ d.pop('b') }}", "{{ xs.append is defined }}|{{ xs.sort }}|{{ d.clear }}",
    "{{ d[['a']] }}", "{{ d.n.k[yes] }} {{ xs[1.0] is undefined }}", "{{ messages[0].content }} {{ messages[0]['role'] }} {{ messages[-1].content[:5] }}",
)
group(
    "tests",
    *[
        "{% for x in mixed + [missing, '', (1,), range(2), d.items(), d.keys(), xs|map('string'), namespace()] %}{{ x is TEST }} {% endfor %}".replace("TEST", t)
        for t in ("defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number", "string", "mapping", "iterable", "sequence", "callable")
    ],
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(4) }} {{ 1 is not odd }}",
    "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aBc' is lower }} {{ '1' is upper }} {{ 5 is lower }}",
    "{{ 1 is eq 1 }} {{ 1 is equalto 2 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is lessthan 2 }} {{ 1 is gt(0) }} {{ 1 is ge 1 }} {{ 1 is le 0 }} {{ 2 is greaterthan 1 }}",
    "{{ 1 is in [1, 2] }} {{ 'a' is in 'abc' }} {{ 5 is not in xs }} {{ none is sameas none }} {{ yes is sameas true }} {{ 1 is sameas true }}",
    "{{ missing is defined and missing.x }} {{ d.a is defined }} {{ d.q is not defined }} {{ d is mapping and d.a is string }}",
    "{{ 1 is number is string }}", "{{ 'x' is nosuch }}",
    "{{ not 1 is odd }} {{ 1 + 1 is even }} {{ 'a' ~ 1 is string }} {{ -1 is number }} {{ xs|length is gt 3 }}",
    "{{ 'x' is string and 1 is number or none is none }} {{ 'a' if 1 is odd else 'b' }}",
)
group(
    "filters of text",
    "{{ s|upper }} {{ s|lower }} {{ 'hello WORLD'|capitalize }} {{ \"foo bar-baz (qux) it's\"|title }} {{ u|upper }} {{ u|lower }} {{ u|title }} {{ u|capitalize }}",
    "[{{ '  x  '|trim }}] [{{ 'xxaxx'|trim('x') }}] [{{ '\u3000 a\u00a0'|trim }}] [{{ none|trim }}] [{{ 5|trim }}] [{{ missing|trim }}]",
    "{{ s|replace('l', 'L') }} {{ s|replace('l', 'L', 1) }} {{ s|replace('', '-') }} {{ s|replace('o', '') }} {{ 'aaa'|replace('aa', 'b') }} {{ 1234|replace('2', 'x') }} {{ s|replace(old='H', new='J') }}",
    "{{ s|length }} {{ u|length }} {{ xs|length }} {{ d|length }} {{ missing|length }} {{ s|count }} {{ ''|length }}",
    "{{ 5|length }}", "{{ none|length }}", "{{ (xs|select)|length }}",
    "{{ lines|indent }}|{{ lines|indent(2, true) }}|{{ lines|indent(2, first=true, blank=true) }}|{{ lines|indent('> ') }}|{{ 'a\\nb\\n'|indent }}|{{ ''|indent(2, true) }}|",
    "{{ html|e }} {{ html|escape|e }} {{ html|safe }} {{ (html|e) ~ '<b>' }} {{ (html|e) + '<b>' }} {{ '<i>' + (html|safe) }} {{ ('<'|e)|upper }}",
    "{{ 5|string + 'x' }} {{ none|string }} {{ [1, 'a']|string }} {{ missing|string }}| {{ 2.0|string }}",
    "{{ '%s is %d and %.2f %5d|%-5s|%05d|%x %X %o %e %g %%'|format('a', 3, 2.5, 42, 'b', 42, 255, 255, 8, 12345.678, 0.0001) }}",
    "{{ '%(a)s %(b)r'|format(a='x', b='y') }} {{ '%s' % 'x' }} {{ '%s %s' % (1, none) }} {{ '%r' % ('it\\'s',) }} {{ '%s' % [1, 2] }} {{ '%(k)s' % {'k': 5} }} {{ '%5.1f|%+d|% d' % (3.14159, 5, 7) }}",
    "{{ '%s' % () }}", "{{ '%s %s' % 'a' }}", "{{ 'x' % 5 }}", "{{ '%d' % 'a' }}", "{{ '%q' % 1 }}", "{{ '%' % 1 }}", "{{ '%(a)s' % 5 }}", "{{ '%*d|%-*d|' % (5, 42, 4, 7) }} {{ '%c%c' % ('a', 'b') }} {{ 'abc' % {} }} {{ '%.3s' % 'abcdef' }}",
)
group(
    "filters of sequences",
    "{{ xs|first }} {{ xs|last }} {{ s|first }} {{ s|last }} {{ u|last }} {{ []|first }}| {{ d|first }} {{ d|last }} {{ ''|first is undefined }}",
    "{{ xs|join }} {{ xs|join(', ') }} {{ words|join('-') }} {{ 'abc'|join('.') }} {{ people|join(', ', attribute='name') }} {{ []|join(',') }}| {{ d|join(',') }} {{ [1, none, 'x', missing]|join('|') }}",
    "{{ xs|sort }} {{ xs|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='name')|map(attribute='name')|join(' ') }}",
    "{{ mixed|sort }}", "{{ [none, 1]|sort }}", "{{ xs|sort(true) }} {{ 'hello'|sort }} {{ d|sort }}",
    "{{ xs|unique|list }} {{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ people|unique(attribute='age')|map(attribute='name')|list }}",
    "{{ xs|min }} {{ xs|max }} {{ words|min }} {{ words|max }} {{ []|max }}| {{ people|max(attribute='age') }}",
    "{{ xs|sum }} {{ people|sum(attribute='age') }} {{ [1.5, 2]|sum }} {{ []|sum }} {{ xs|sum(start=100) }}", "{{ words|sum }}",
    "{{ xs|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ xs|list }} {{ s|list }} {{ d|list }} {{ missing|list }} {{ (1, 2)|list }}",
    "{{ 5|list }}", "{{ none|list }}",
    "{{ xs|map('string')|list }} {{ words|map('upper')|join(',') }} {{ people|map(attribute='city.zip')|list }}", "{{ people|map(attribute='city.zip.q')|list }}",
    "{{ people|map(attribute='zz', default='-')|list }} {{ people|map(attribute='zz')|list }} {{ [[1, 2], [3]]|map('first')|list }} {{ [[1, 2], [3]]|map(attribute=0)|list }} {{ words|map('replace', 'p', 'P')|list }}",
    "{{ xs|select('odd')|list }} {{ xs|reject('odd')|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ [0, 1]|reject|list }} {{ xs|select('gt', 2)|list }} {{ xs|select('in', [1, 2])|list }} {{ xs|select('>', 2)|list }} {{ xs|select('==', 3)|list }}",
    "{{ people|selectattr('age', 'equalto', 31)|map(attribute='name')|list }} {{ people|selectattr('city')|list|length }} {{ people|rejectattr('city', 'defined')|list|length }} {{ people|rejectattr('age', 'lt', 10)|map(attribute='name')|join }} {{ messages|selectattr('role', 'eq', 'user')|list|length }} {{ people|selectattr('city.zip', 'undefined')|list }}",
    "{{ none|select|list }} {{ none|map('upper')|list }} {{ missing|selectattr('x')|list }}", "{{ xs|map|list }}", "{{ xs|map('nosuch')|list }}", "{{ xs|select('nosuch')|list }}",
    "{% set g = xs|select('odd') %}{{ g|list }} {{ g|list }} {{ g is iterable }} {{ g is sequence }}{% set h = xs|map('string') %}{{ h|first }} {{ h|list }}",
    "{{ d|dictsort }} {{ d|dictsort(true) }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': 1, 'a': 2}|dictsort(reverse=true) }} {% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{{ [1]|dictsort }}", "{{ {1: 2, 'a': 3}|dictsort }}", "{{ d|items|list }} {{ missing|items|list }} {% for k, v in d|items %}{{ k }}{{ v }} {% endfor %}", "{{ xs|items|list }}",
    "{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d.items()|length }} {{ {'a': 1}.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }}",
    "{{ xs|attr('x') is undefined }} {{ xs|default('q') }} {{ [3, 'a']|max }}",
)
group(
    "filters of scalars",
    "{{ missing|default('x') }} {{ d.zz|default('y') }} {{ none|default('z') }} {{ none|default('z', true) }} {{ ''|d('e', boolean=true) }} {{ missing|default }}| {{ 0|default(5, true) }} {{ missing|d(missing2)|d('deep') }} {{ missing|default(default_value='k') }}",
    "{{ '42'|int }} {{ ' 42 '|int }} {{ '4_2'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ none|int }} {{ true|int }} {{ 'ff'|int(0, 16) }} {{ '0xff'|int(0, 16) }} {{ '-5'|int }} {{ '+5'|int }} {{ '1e3'|int }} {{ ''|int }} {{ [1]|int }}",
    "{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ none|float }} {{ ' 1e3 '|float }} {{ '-.5'|float }} {{ 'inf'|float }} {{ true|float }}",
    "{{ missing|int }}", "{{ missing|float }}",
    "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 1234.5|round(-2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 42|round }} {{ 2.345|round(2, 'ceil') }} {{ -2.5|round }} {{ 0.05|round(1) }}",
    "{{ -5|abs }} {{ 5.5|abs }} {{ -5.5|abs }} {{ true|abs }}", "{{ 'a'|abs }}", "{{ 'a'|round }}", "{{ 'x'|nosuch }}", "{% if no %}{{ 'x'|nosuch }}{% endif %}ok",
    "{{ 5|default(1, 2, 3) }}", "{{ s|replace('a') }}", "{{ s|upper(1) }}", "{{ s|trim(nosuch=1) }}",
)
group(
    "tojson",
    "{{ d|tojson }} {{ xs|tojson }} {{ s|tojson }} {{ none|tojson }} {{ true|tojson }} {{ 1.0|tojson }} {{ 1e20|tojson }} {{ (1, 2)|tojson }} {{ []|tojson }} {{ {}|tojson }}",
    "{{ d|tojson(indent=2) }} {{ nested|tojson(indent=4) }} {{ []|tojson(indent=2) }} {{ {'a': {}}|tojson(indent=1) }} {{ [1, [2]]|tojson(indent=0) }} {{ [1]|tojson(indent='\t') }}",
    "{{ odd|tojson }} {{ odd|tojson(ensure_ascii=true) }} {{ html|tojson }} {{ u|tojson(true) }}",
    "{{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true) }} {{ {1: 'a', none: 'b', true: 'c', 2.5: 'd'}|tojson }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(separators=(',', ':'), indent=1) }}",
    "{{ floats|tojson }} {{ messages|tojson }} {{ nested|tojson }}", "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ d.items()|tojson }}", "{{ xs|select|tojson }}", "{{ {(1, 2): 3}|tojson }}", "{{ range(3)|tojson }}", "{{ namespace()|tojson }}",
    "{{ (xs|list)|tojson ~ 'x' }} {{ 'a'|tojson|length }} {{ '/\u2028\x7f'|tojson }}",
)
group(
    "printing",
    "{{ odd|list }} {{ [odd] }} {{ {'k': odd} }}", "{{ mixed }} {{ nested }} {{ d }}", "{{ [\"it's\", 'say \"hi\"', 'both \\' and \"', 'back\\\\slash', 'tab\\t'] }}",
    "{{ [missing] }} {{ [none, true, 1.0] }} {{ [('a', 1)] }} {{ range(3) }} {{ range(1, 10, 3)|list }} {{ [range(2)] }}", "{{ messages }}", "{{ [1e16, 1.0, 0.1] }} {{ {'a': (1,)} }} {{ ['\u00e9', '\u200b', '\U0001F600', '\u00ad'] }}",
)
group(
    "string methods",
    "[{{ '  a b '.strip() }}] [{{ '  a '.lstrip() }}] [{{ ' a  '.rstrip() }}] [{{ 'xyaxy'.strip('yx') }}] [{{ 'a\\n\\n'.rstrip('\\n') }}] [{{ '\u00e9\u00e9a\u00e9'.strip('\u00e9') }}] [{{ 'abc'.strip('') }}] [{{ ' a '.strip(none) }}]",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ ' a  b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a<think>b</think>c'.split('</think>')[-1] }} {{ 'abc'.split('b')[0] }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a b c'.rsplit() }} {{ 'aXXbXXc'.rsplit('XX') }} {{ 'a,b'.rsplit(',', 0) }} {{ 'a b'.split(',', 5) }}", "{{ 'a'.split('') }}", "{{ 'a'.split(1) }}",
    "{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }} {{ 'a\\n'.splitlines() }} {{ 'a\\n\\nb'.split('\\n') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith('', 4) }}", "{{ 'a'.startswith(1) }}", "{{ 'a'.startswith(['a']) }}",
    "{{ s.upper() }} {{ s.lower() }} {{ \"it's a TEST-case 3d\".title() }} {{ 'hELLO'.capitalize() }} {{ u.upper() }} {{ u.title() }} {{ u.capitalize() }}",
    "{{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ '\u00e9'.replace('', '.') }} {{ ''.replace('', 'x') }} {{ 'aaaa'.replace('aa', 'b', 1) }} {{ 'abc'.replace('b', '') }}", "{{ 'a'.replace('a', 1) }}", "{{ 'a'.replace('a') }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'hello'.find('l', 3) }} {{ 'hello'.find('', 2) }} {{ u.find('\u65e5') }} {{ 'hello'.index('e') }} {{ 'hello'.rindex('l') }} {{ 'hello'.count('l') }} {{ 'aaa'.count('aa') }} {{ 'aaa'.count('') }} {{ 'hello'.find('o', -2) }}", "{{ 'a'.index('b') }}",
    "{{ ','.join(['a', 'b']) }} {{ ''.join([]) }}| {{ '-'.join('abc') }} {{ ', '.join(d) }}", "{{ ','.join([1]) }}", "{{ ','.join(5) }}",
    "{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'A'.isupper() }} {{ 'a'.islower() }} {{ '\u00b2'.isdigit() }} {{ ''.isdigit() }}",
    "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }} {{ 'x'.removesuffix('') }}",
    "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}", "{{ 'a'.partition('') }}",
    "{{ '{} {}'.format('a', 1) }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x} {y!r}'.format(x=1, y='z') }} {{ '{0[k]} {0.k}'.format({'k': 'v'}) }} {{ '{{}} {}'.format(1) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 255) }}",
    "{{ '{:*^7}|{:+d}|{:e}|{:g}|{:%}|{:.3}|{:5}|{:5}|'.format('x', 5, 12345.678, 0.5, 0.25, 'abcdef', 1, 'a') }} {{ '{:#x} {:b} {:o} {:c}'.format(255, 5, 8, 65) if false else 'skip' }} {{ '{:06.2f}|{:<8.3f}|{:10,.1f}'.format(3.14159, 2.5, 12345.67) }}",
    "{{ '{} {}'.format(1) }}", "{{ '{'.format() }}", "{{ '}'.format() }}", "{{ '{x}'.format(y=1) }}", "{{ '{:d}'.format('a') }}", "{{ '{0.__class__}'.format('a') }}", "{{ '{:q}'.format(1) }}", "{{ '{!x}'.format(1) }}",
    "{{ '%s'.format(1) }} {{ 'no fields'.format() }} {{ '{0}{0}'.format('\u00e9') }} {{ '{}'.format(none) }} {{ '{}'.format([1, 'a']) }} {{ '{}'.format(true) }} {{ '{}'.format(1.0) }}",
)
group(
    "dict and list methods",
    "{{ d.get('a') }} {{ d.get('zz', 'def') }} {{ d.copy() == d }} {{ xs.count(3) }} {{ xs.index(2) }} {{ (1, 2, 1).count(1) }} {{ xs.copy() }}", "{{ xs.index(99) }}", "{{ d.get() }}", "{{ d.get([1]) }}", "{{ d.setdefault('q', 1) }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }} {% endfor %} {% for k in d.keys() %}{{ k }} {% endfor %} {% for v in d.values() %}{{ v }} {% endfor %}", "{{ 'a' in d.keys() }} {{ 1 in d.values() }} {{ ('b', 1) in d.items() }}",
    "{{ d.items()[0] is undefined }} {{ d.keys() is iterable }} {{ d.keys() == {'b': 0, 'a': 0, 'C': 0, 'items': 0, 'n': 0}.keys() }}",
)
group(
    "if",
    "{% if yes %}a{% endif %}{% if no %}b{% endif %}{% if no %}c{% else %}d{% endif %}{% if no %}e{% elif yes %}f{% else %}g{% endif %}{% if no %}{% elif no %}{% elif yes %}h{% endif %}",
    "{% if missing %}a{% else %}b{% endif %}{% if missing is defined and missing.x %}c{% endif %}{% if xs and d and s %}d{% endif %}{% if [] or {} or '' or 0 or none %}e{% endif %}", "{% if yes: %}a{% endif %}", "{% if (yes and\n not no) %}multi{% endif %}",
    "{% if yes %}", "{% endif %}", "{% if %}a{% endif %}", "{% if yes %}{% else %}{% else %}{% endif %}", "{% if yes %}{% endfor %}", "{% elif yes %}", "{% nosuch %}", "{% if 1, 2 %}t{% endif %}",
)
group(
    "for",
    "{% for x in xs %}{{ x }},{% endfor %} {% for c in 'h\u00e9y' %}[{{ c }}]{% endfor %} {% for x in [] %}a{% else %}none{% endfor %} {% for x in missing %}a{% else %}undef{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b', 'c') }} {{ loop.changed(x) }} {{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }}{% if not loop.last %}, {% endif %}{% endfor %} {% for x in xs if x > 100 %}x{% else %}none{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}-{{ b }} {% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in %}{% endfor %}", "{% for in xs %}{% endfor %}", "{% for x in xs %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 10 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in xs %}{% break %}{% else %}never{% endfor %}|", "{% break %}", "{% continue %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in xs %}{% for y in [1, 2] %}{{ loop.index }}{{ x }}{{ y }}{% if y == 1 %}{% continue %}{% endif %}!{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set outer = 0 %}{% for x in xs %}{% set outer = x %}{{ outer }}{% endfor %}|{{ outer }}|{{ x }}", "{% for x in xs %}{% set y = x %}{% endfor %}{{ y is defined }}", "{% for x in [1, 2] %}{{ y }}{% set y = x %}{% endfor %}",
    "{% set ns = namespace(found=false) %}{% for x in xs if not ns.found %}{{ x }}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}", "{% for x in range(3) %}{% for y in range(x) %}{{ loop.index }}.{{ loop.first }} {% endfor %}{% endfor %}",
    "{% for m in messages %}{{ loop.index0 }}{{ m.role }}{% if loop.nextitem is defined and loop.nextitem.role == 'user' %}>{% endif %}{% endfor %}", "{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %} {% for m in messages[1:] %}{{ loop.first }}{% endfor %}",
    "{% for x in xs|sort|unique %}{{ x }}{% if loop.last %}.{% endif %}{% endfor %} {% for k, v in d|dictsort %}{{ loop.index }}{{ k }}{% endfor %} {% for x in xs|select('odd') %}{{ loop.length }}{% endfor %}", "{{ loop }}", "{% for x in xs %}{{ loop.nosuch is defined }}{% endfor %}",
    "{% for x in xs + [4] %}{{ x }}{% endfor %} {% for x in [1, 2, 3] if x is odd %}{{ x }}{% endfor %} {% for x in 1, 2, 3 %}{{ x }}{% endfor %} {% for x in (xs if yes else []) %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% set loop_index = loop.index %}{% if loop.index is divisibleby 2 %}{{ loop_index }}{% endif %}{% endfor %}", "{% for loop in xs %}{{ loop }}{% endfor %}",
)
group(
    "set",
    "{% set a = 1 %}{% set b, c = 2, 3 %}{% set d2 = [a, b] %}{{ a }}{{ b }}{{ c }}{{ d2 }}{% set (e, f) = (4, 5) %}{{ e }}{{ f }}{% set g = 1, 2 %}{{ g }}", "{% set t %}  hello {{ s }} {% endset %}[{{ t }}]{% set t | upper %}x{{ 1 }}{% endset %}{{ t }}{% set t | replace('a', 'b') | trim %} aa {% endset %}[{{ t }}]",
    "{% set ns = namespace() %}{% set ns.x = 5 %}{{ ns.x }}{{ ns.y }}{% set ns.x = ns.x + 1 %}{{ ns.x }}{% set ns = namespace(a=1, b='c') %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{% set ns2 = namespace({'q': 1}, r=2) %}{{ ns2.q }}{{ ns2.r }}",
    "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set a, b = 1 %}", "{% set a, b = (1, 2, 3) %}", "{% set 5 = 1 %}", "{% set true = 1 %}", "{% set a %}", "{% set a = %}",
    "{% if yes %}{% set a = 'in if' %}{% endif %}{{ a }}{% if no %}{% set s = 'never' %}{% endif %}{{ s }}", "{% set a = 1 %}{% set a = a + 1 %}{{ a }}{% set s = s ~ '!' %}{{ s }}", "{% set x = 1 %}{% with x = 2, y = x %}{{ x }}{{ y }}{% set x = 3 %}{{ x }}{% endwith %}{{ x }}{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% set ns = namespace(list=[]) %}{% for x in xs %}{% set ns.list = ns.list + [x * 2] %}{% endfor %}{{ ns.list }}", "{% set t %}{% set inner = 1 %}{{ inner }}{% endset %}{{ t }}{{ inner is defined }}", "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "{% set ns = namespace() %}{% set ns.t %}block{% endset %}{{ ns.t }}", "{% set a = b = 1 %}",
    "{% set x = namespace(a=1) %}{% set y = x %}{% set y.a = 2 %}{{ x.a }}", "{% set a = 'x' if no else 'y' %}{{ a }}{% set b = missing %}{{ b is defined }}", "{% set ns.x = 1 %}",
)
group(
    "macro",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=6) }}{{ m() }}{{ m(1, 2, 3) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{% macro m(a, a2=a) %}{{ a2 }}{% endmacro %}{{ m(5) }}{{ m(5, 6) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(10) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body {{ s }}{% endcall %}{% macro p(xs) %}{% for x in xs %}<{{ caller(x) }}>{% endfor %}{% endmacro %}{% call(x) p(xs) %}{{ x }}!{% endcall %}",
    "{% macro m() %}{% if caller %}yes{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}c{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{{ a() }}{% macro a() %}A{% endmacro %}", "{% set x = 'outer' %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% set x = 'later' %}{{ m() }}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m(1) }}{{ m(1) }}{{ x is defined }}", "{% macro m() %}  padded  {% endmacro %}[{{ m()|trim }}][{{ m() | upper }}]{{ m() is string }} {{ m is callable }} {{ m.name }}", "{% for x in [1, 2] %}{% macro m() %}{{ x }}{{ loop is defined }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro tree(n) %}{{ n }}{% if n > 0 %}({{ tree(n - 1) }}{{ tree(n - 1) }}){% endif %}{% endmacro %}{{ tree(3) }}", "{% macro m(a, b) %}{{ a }}{{ b is defined }}{% endmacro %}{{ m(*[1]) }}{{ m(*[1, 2]) }}{{ m(**{'a': 3}) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a %}{% endmacro %}", "{% macro m() %}", "{% call s %}{% endcall %}",
    "{% set ns = namespace(f=none) %}{% macro m() %}M{% endmacro %}{% set ns.f = m %}{{ ns.f() }}", "{% macro m(x) -%}\n  {{- x -}}\n{%- endmacro %}[{{ m('a') }}]", "{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}", "{% macro m() %}{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}{% endmacro %}{{ m() }}", "{% macro loopy(x) %}{{ loopy(x) }}{% endmacro %}{{ loopy(1) }}",
    "{% macro m(x) %}{{ x.nosuch }}{{ x }}{% endmacro %}{{ m(d.a) }}", "{% macro m(x) %}{{ x.y }}{% endmacro %}{{ m() }}",
)
group(
    "blocks",
    "{% filter upper %}abc {{ s }}{% endfilter %} {% filter trim|replace('a', 'b') %}  aXa {% endfilter %}|", "{% filter indent(2) %}a\nb{% endfilter %}", "{% filter nosuch %}x{% endfilter %}", "{% generation %}gen {{ s }}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "{% raw %}{{ not }} {% parsed %} {# at all #}{% endraw %}!", "{% raw %} a {% endraw %}|{%- raw -%} b {%- endraw -%} |", "  {% raw %}\n x\n  {% endraw %}\n y", "{% raw %}{{", "{% raw %}{% endraw",
    "{% print 1, 2 %}{% print s %}", "a{# comment #}b{#- strip -#} c {#+ plus +#} d", "a {# multi\nline {{ x }} {% if %} #} b", "{# unclosed", "{#-#}x{##}y", "a\n  {# c #}\nb", "a\n  {#- c -#}\nb",
    "{% for x in [1, 2] %}{% generation %}{{ x }}{{ loop.last }}{% endgeneration %}{% endfor %}", "{% autoescape %}{% endautoescape %}x", "{{ }}", "{{ 1", "{% if yes %", "{{ 1 }", "{{ (1 }}", "{{ 1) }}", "{{ [1) }}", "{{ 'a }}", "{{ a b }}", "{{ 1 + }}", "{{ | upper }}", "{{ a. }}", "{{ a[ }}", "{{ a[] }}", "{{ f(,) }}", "{{ f(a=1, 2) }}", "{{ {1} }}", "{{ $ }}", "{{ a ? b : c }}", "{{ a; b }}", "{{ a = 1 }}", "{% set a 1 %}", "{{ {'a' 1} }}",
)
group(
    "functions",
    "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[2] }} {{ range(3)|sum }} {{ range(3) == range(0, 3) }}", "{{ range(1000000) }}", "{{ range(1, 2, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ range(1.5) }}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }} {{ dict() }} {{ dict({'a': 1}, **{'b': 2}) }}", "{{ dict(1) }}",
    "{{ raise_exception('no ' ~ s) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}fine", "{{ strftime_now('%Y')|length }} {{ strftime_now('plain') }} {{ strftime_now('%%') }} {{ strftime_now('')|length }}", "{{ raise_exception() }}", "{{ s() }}", "{{ 5() }}", "{{ nosuch() }}", "{{ range is callable }} {{ dict is defined }}", "{{ namespace(1) }}",
)
group(
    "whitespace",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}\nc", "a  {%- if yes -%}  b  {%- endif -%}  c", "a\n\n{%- if yes %}\n\nb\n\n{%- endif %}\n\nc", "  {%+ if yes %}x{%+ endif %}  ", "  {% if yes +%}\nx{% endif +%}\ny", "a {{- ' b ' -}} c", "a\n  {{ s }}\n  {{- s }}\n  {{ s -}}\n b", "{{ s }}\n", "{{ s }}\n\n", "x\n", "x\r\ny\rz\r\n", "\n", "", " ",
    "  {{ s }}  \n  {% set a = 1 %}  \n  {{ a }}", "{% for x in [1, 2] %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in [1, 2] -%}\n  {{ x }}\n{%- endfor -%}\n", "{% for x in [1, 2] %}\n\n  - {{ x }}\n{% endfor %}done", "a {% if yes %} b {% endif %} c", "\t{% if yes %}\t\n\tx\n\t{% endif %}\t\n", "a\n{# c #}\nb", "a {# c #}\n b", "{% if yes %}\r\nx\r\n{% endif %}\r\ny", "{% set a = 1 -%}\n\n  x", "{% if yes %}a{% endif %}\n\n\nb", "a\n \n  {%- if yes %} b{% endif %}", "{{ 'a' -}}\n{{- 'b' }}", "{{ 1 }}{% if yes %}\n{% endif %}\n{{ 2 }}", "   {% if yes %}   {% if yes %}   x", "   {% if yes %}   {% endif %}   {% if yes %}x{% endif %}", "a\u00a0{%- if yes %}b{% endif %}", "a\n\u3000{% if yes %}b{% endif %}", "{%if yes%}x{%endif%}", "{%-if yes-%} x {%-endif-%}", "{{s}}{{-s-}}{{ - 5 }}{{-5}}{{ -5 }}", "{% if yes %}\n\n{% endif %}\n", "x{% if yes %}\n  y\n  {% else %}\n  z\n{% endif %}\nw", "{{ '\n' }}{{ 'a\r\nb' }}", "line\n{% macro m() %}\n  in\n{% endmacro %}\n{{ m() }}\n", "<{% set t %}\n  x\n{% endset %}\n{{ t }}>", "a{{ '' }}\n  {% if yes %}b{% endif %}", "a\n{{ '' }}  {% if yes %}b{% endif %}", "{{ s }} {%- if yes %} b{% endif %}", "{% if yes %}a{%- endif %}  {# x -#}  b", "\n\n  {%- if yes %}x{% endif %}", "{% if yes -%}\n  x\n  {%- else -%} y {%- endif %} z",
)
group(
    "idioms",
    # chatml with a default system message
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 %}{{ '<|im_start|>system\n' + system_message + '<|im_end|>\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '')|trim + '<|im_end|>\n' }}{% endfor %}",
    # alternation as gemma and mistral demand it
    "{% for message in messages[1:] %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + (message['content'] or '') | trim + '<end_of_turn>\n' }}{% endfor %}",
    # the last user message, found backwards
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n{{ ns.last_query_index }}",
    # a type as a language's text, through recursive macros
    "{%- macro kind(p) -%}\n{%- if p.type == 'array' -%}{{ kind(p['items']) }}[]{%- elif p.type is sequence and p.type is not string -%}{%- for t in p.type -%}{{ kind({'type': t}) }}{%- if not loop.last %} | {% endif -%}{%- endfor -%}{%- elif p.type == 'object' and p.properties -%}{ {% for k, v in p.properties.items() -%}{{ k }}: {{ kind(v) }}{{ ', ' if not loop.last }}{%- endfor %} }{%- else -%}{{ p.type }}{%- endif -%}\n{%- endmacro -%}\n{{ kind({'type': 'object', 'properties': {'a': {'type': 'array', 'items': {'type': 'string'}}, 'b': {'type': ['integer', 'null']}}}) }}",
    # thinking cut out of an answer
    "{% set content = '<think>\\nhm\\n</think>\\n\\nanswer' %}{% if '</think>' in content %}{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}[{{ reasoning }}][{{ content }}]",
    # parameters with their defaults
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}{% if not tools_in_user_message is defined %}{% set tools_in_user_message = true %}{% endif %}{{ tools_in_user_message }}{% set enable = enable_thinking if enable_thinking is defined else true %}{{ enable }}",
    "{%- for message in messages %}\n    {%- if message.role == 'system' %}\n{{ message.content }}\n\n    {%- elif message.tool_calls is defined and message.tool_calls is not none %}\n        {%- for call in message.tool_calls %}\n            {{- '\\n<tool_call>\\n' }}{{ call.name }}({{ call.args | tojson }})\n            {{- '\\n</tool_call>' }}\n        {%- endfor %}\n    {%- endif %}\n{%- endfor %}\n",
    "{% set roles = {'user': 'U', 'assistant': 'A'} %}{% for m in messages if m.role in roles %}{{ roles[m.role] }}:{{ m.content|default('-', true) }};{% endfor %}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|map('trim')|join(' / ') }}", "{{ messages|map(attribute='role')|unique|join(',') }} {{ messages|rejectattr('role', 'in', ['system', 'user'])|list|length }}",
)


def main():
    env = make_environment()
    out = [json.dumps({"variables": VARIABLES}, ensure_ascii=False)]
    refused = 0
    for name, template in CASES.items():
        row = {"name": name, "template": template}
        try:
            row["expected"] = env.from_string(template).render(**VARIABLES)
            row["expected"].encode()
        except Exception as e:  # whatever Python raises is a refusal
            row.pop("expected", None)
            row["refused"] = True
            row["jinja2"] = f"{type(e).__name__}: {e}"[:200]
            refused += 1
        out.append(json.dumps(row, ensure_ascii=False))
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else (
        Path(__file__).parent.parent / "tests/golden/templates/cases.jsonl"
    )
    path.write_text("\n".join(out) + "\n", encoding="utf-8")
    print(f"{path}: {len(CASES)} cases, {refused} refused")


if __name__ == "__main__":
    main()
