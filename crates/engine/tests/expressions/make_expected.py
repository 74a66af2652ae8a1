"""Makes expected.json: what jinja2, set up as transformers sets it up, makes of each small template of
templates.txt, one a line.

    pip install jinja2==3.1.6 transformers==5.24.0
    python make_expected.py > expected.json
"""

import datetime
import json
import pathlib

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = json.loads((pathlib.Path(__file__).parent / "variables.json").read_text())


def outcome(source):
    try:
        template = _compile_jinja_template(source)
        template.globals["strftime_now"] = datetime.datetime(2026, 7, 6, 9, 8, 7).strftime
        return template.render(**VARIABLES)
    except jinja2.exceptions.TemplateError as error:
        return {"refuses": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"fails": True}
    except Exception:
        return {"fails": True}


def main():
    lines = (pathlib.Path(__file__).parent / "templates.txt").read_text().splitlines()
    sources = (line.replace("\\n", "\n") for line in lines if line)
    pairs = (json.dumps([source, outcome(source)], ensure_ascii=False) for source in sources)
    print("[\n" + ",\n".join(pairs) + "\n]")


main()
