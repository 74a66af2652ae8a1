"""Makes renderings.json: what Python's jinja2, set up as transformers sets it up, makes of every chat template
in every conversation of conversations.json.

    pip install jinja2==3.1.6 transformers==5.24.0
    python make_renderings.py TEMPLATES_FOLDER [WHOLE_TEXTS_FOLDER] > renderings.json

For each template and conversation: the first 16 hex digits of the SHA-256 of the text, or what it raised.
With a second folder the whole texts go there, to be compared when a digest differs.
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

NOW = datetime.datetime(2026, 7, 6, 9, 8, 7)


def render(source, arguments):
    template = _compile_jinja_template(source)
    template.globals["strftime_now"] = NOW.strftime
    defaults = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    return template.render(**(defaults | arguments))


def outcome(source, arguments):
    try:
        text = render(source, arguments)
        return hashlib.sha256(text.encode()).hexdigest()[:16], text
    except jinja2.exceptions.TemplateError as error:
        # Only raise_exception raises the plain class; the message is the template's own.
        if type(error) is jinja2.exceptions.TemplateError:
            return {"refuses": str(error)}, "refuses: " + str(error)
        return {"fails": type(error).__name__}, "fails: " + repr(error)
    except Exception as error:
        return {"fails": type(error).__name__}, "fails: " + repr(error)


def main():
    here = pathlib.Path(__file__).parent
    conversations = json.loads((here / "conversations.json").read_text())
    whole = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    renderings = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        source = path.read_text()
        renderings[path.stem] = {}
        for name, arguments in conversations.items():
            renderings[path.stem][name], text = outcome(source, arguments)
            if whole:
                (whole / f"{path.stem}.{name}.txt").write_text(text, newline="")
    lines = (f"{json.dumps(name)}:{json.dumps(cases, ensure_ascii=False)}" for name, cases in renderings.items())
    print("{\n" + ",\n".join(lines) + "\n}")


main()
