#!/usr/bin/env python3
"""Compares chat templates rendered by culet with the same ones rendered by python's jinja2.

    check_templates.py --program build/.../template_render [TEMPLATE.jinja | FOLDER ...]

Without templates: those of published models, in $CULET_VECTORS (scripts/fetch_vectors).
Each template is rendered over a fixed set of conversations (plain, system, several turns, tools,
tool calls and results, reasoning, content in parts, odd text) with jinja2 set up as transformers
does it. The text must be equal byte for byte; where jinja2 raises, culet must refuse too. Exit
status 1 when anything differs. Needs python3-jinja2 (or pip install jinja2).
"""

import argparse
import copy
import datetime
import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

# The distribution's package belongs to its own python, which need not be the first in the path.
SYSTEM_PYTHON = "/usr/bin/python3"
if not importlib.util.find_spec("jinja2") and Path(sys.executable) != Path(SYSTEM_PYTHON):
    os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers has it: a block in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def make_environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)
    return env


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather.\nUse it often.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city, e.g. \"Z\u00fcrich\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 1.5e10},
                "places": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"lat": {"type": "number"}}},
                },
            },
            "required": ["city"],
        },
        "return": {"type": "string"},
    },
}
NOTHING = {
    "type": "function",
    "function": {
        "name": "do_nothing",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    },
}


def call(arguments, name="get_weather", call_id="abcdefgh9"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    system = {"role": "system", "content": "You are terse."}
    user = {"role": "user", "content": "What is 2+2?"}
    weather = {"role": "user", "content": "Weather in Z\u00fcrich?"}
    arguments = {"city": "Z\u00fcrich", "days": 3, "deep": {"a": [1, 2.5, None, True], "b": "x\ny"}}
    odd = "  <|im_end|>\n'quoted' \"double\" \\ {{ x }} {% y %} <b>&amp;</b> \u00e9 \u65e5\u672c \U0001F600 </think> \t"
    called = {"role": "assistant", "content": "", "tool_calls": [call(arguments)]}
    result = {
        "role": "tool", "name": "get_weather", "tool_call_id": "abcdefgh9",
        "content": '{"temperature": 21}',
    }
    tools = [WEATHER, NOTHING]
    yield "user", [user], {}
    yield "user, no generation", [user], {"add_generation_prompt": False}
    yield "system", [system, user], {}
    yield "turns", [system, user, {"role": "assistant", "content": "4"}, weather], {}
    yield "closed", [user, {"role": "assistant", "content": "4"}], {"add_generation_prompt": False}
    yield "odd text", [{"role": "system", "content": odd}, {"role": "user", "content": odd}], {}
    yield "odd answer", [user, {"role": "assistant", "content": odd}, user], {}
    yield "empty", [{"role": "user", "content": ""}], {}
    yield "no messages", [], {}
    yield "two users", [user, weather], {}
    yield "assistant first", [{"role": "assistant", "content": "4"}, user], {}
    yield "unknown role", [{"role": "alien", "content": "hm"}], {}
    yield "late system", [user, {"role": "assistant", "content": "4"}, system, user], {}
    yield "developer", [{"role": "developer", "content": "Be kind."}, user], {}
    yield "tools", [weather], {"tools": tools}
    yield "tools and system", [system, weather], {"tools": tools}
    yield "empty tools", [system, weather], {"tools": []}
    yield "tool call", [weather, called, result], {"tools": tools}
    yield "tool call, more", [
        system, weather, called, result, {"role": "assistant", "content": "21 degrees."}, user,
    ], {"tools": tools}
    yield "tool call with text", [weather, {**called, "content": "Let me see."}, result], {"tools": tools}
    yield "tool call, null content", [weather, {**called, "content": None}, result], {"tools": tools}
    as_text = copy.deepcopy(called)
    as_text["tool_calls"][0]["function"]["arguments"] = json.dumps(arguments)
    yield "tool call, arguments as text", [weather, as_text, result], {"tools": tools}
    two = {
        "role": "assistant", "content": "",
        "tool_calls": [call(arguments), call({}, "do_nothing", "zyxwvuts1")],
    }
    yield "two calls", [
        weather, two, result,
        {"role": "tool", "name": "do_nothing", "tool_call_id": "zyxwvuts1", "content": "done"},
    ], {"tools": tools}
    thought = {"role": "assistant", "content": "4", "reasoning_content": "2 and 2\nmake 4."}
    yield "reasoning", [user, thought, weather], {}
    yield "reasoning, last", [user, thought], {"add_generation_prompt": False}
    yield "thinking field", [user, {"role": "assistant", "content": "4", "thinking": "hm"}, user], {}
    in_text = {"role": "assistant", "content": "<think>\n2 and 2\n</think>\n\n4"}
    yield "reasoning in text", [user, in_text, weather], {}
    yield "reasoning and call", [weather, {**called, "reasoning_content": "Need it."}, result], {"tools": tools}
    yield "thinking on", [user], {"enable_thinking": True}
    yield "thinking off", [user], {"enable_thinking": False}
    yield "thinking flag", [user], {"thinking": True}
    yield "effort", [user], {"reasoning_effort": "high"}
    parts = [{"type": "text", "text": "Look"}, {"type": "text", "text": " here"}]
    yield "parts", [{"role": "user", "content": parts}], {}
    yield "parts everywhere", [
        {"role": "system", "content": parts}, {"role": "user", "content": parts},
        {"role": "assistant", "content": parts}, {"role": "user", "content": parts},
    ], {}
    yield "image", [{"role": "user", "content": [{"type": "image"}] + parts}], {}
    yield "documents", [user], {"documents": [{"title": "T", "text": "Body"}]}
    yield "date", [user], {"date_string": "26 Jul 2024"}
    yield "no system role", [user], {"custom_tools": None}
    yield "functions", [user], {"functions": [WEATHER], "datetime": "now", "tools": tools}
    yield "long", [user, {"role": "assistant", "content": "4"}] * 20 + [user], {}


CONSTANTS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


def request(template, messages, extra):
    data = {"messages": messages, "tools": None, "documents": None}
    constants = {**CONSTANTS, "add_generation_prompt": True}
    for key, value in extra.items():
        (data if key in ("tools", "documents") else constants)[key] = value
    return {"template": template, "data": data, "constants": constants}


@functools.cache
def compiled(env, template):
    return env.from_string(template)


def render_jinja(env, wanted):
    try:
        text = compiled(env, wanted["template"]).render(**wanted["data"], **wanted["constants"])
        text.encode()
        return text, None
    except Exception as e:  # whatever Python raises is a refusal
        return None, f"{type(e).__name__}: {e}"


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def render(self, wanted):
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    start = max(0, at - 40)
    return f"at character {at}:\n    jinja2 {a[start:at + 60]!r}\n    culet  {b[start:at + 60]!r}"


def check(env, program, name, template, counts, verbose):
    for case, messages, extra in conversations():
        wanted = request(template, messages, extra)
        expected, raised = render_jinja(env, wanted)
        got = program.render(wanted)
        counts["all"] += 1
        counts["raised"] += raised is not None
        what = None
        if raised is not None and "error" not in got:
            what = f"jinja2 raises {raised[:300]}, culet renders {got['text'][:200]!r}"
        elif raised is None and "error" in got:
            what = f"culet refuses: {got['error']}"
        elif raised is None and got["text"] != expected:
            what = first_difference(expected, got["text"])
        elif verbose and raised is not None:
            print(f"{name}: {case}: both refuse\n    {raised[:200]}\n    {got['error'][:200]}")
        if what:
            counts["different"] += 1
            print(f"{name}: {case}: {what}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--program", required=True)
    ap.add_argument("--verbose", action="store_true", help="show what both refuse")
    ap.add_argument("paths", nargs="*", type=Path)
    args = ap.parse_args()
    vectors = os.environ.get("CULET_VECTORS")
    if not args.paths and not vectors:
        ap.error("give templates, or set CULET_VECTORS to the folder that scripts/fetch_vectors prints")
    files = []
    for path in args.paths or [Path(vectors, "templates")]:
        files += sorted(path.glob("*.jinja")) if path.is_dir() else [path]
    env, program = make_environment(), Program(args.program)
    counts = {"all": 0, "raised": 0, "different": 0}
    for file in files:
        check(env, program, file.name, file.read_text(encoding="utf-8"), counts, args.verbose)
    print(
        f"{len(files)} templates, {counts['all']} renderings, {counts['raised']} of them refused by"
        f" jinja2, {counts['different']} different"
    )
    return 1 if counts["different"] or not files else 0


if __name__ == "__main__":
    sys.exit(main())
