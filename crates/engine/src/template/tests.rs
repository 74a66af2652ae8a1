//! Bounds and errors of templates; what they render is compared with Python's jinja2 in `tests/`.

use serde_json::{Map, Value, json};

use super::*;

fn render(source: &str) -> Result<String, TemplateError> {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    ChatTemplate::new(source, "<s>", "</s>")?.render(&messages, None, true, &Map::new())
}

fn failure(source: &str) -> String {
    render(source).unwrap_err().to_string()
}

#[test]
fn a_template_sees_the_conversation_and_the_special_tokens() {
    let source = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}\
                  {{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}";
    assert_eq!(render(source).unwrap(), "<s>user: Hi</s>NoneNoneTrue");
}

#[test]
fn extra_variables_replace_the_usual_ones() {
    let template = ChatTemplate::new("{{ enable_thinking }} {{ bos_token }}", "<s>", "").unwrap();
    let Value::Object(extra) = json!({"enable_thinking": false, "bos_token": "!"}) else { unreachable!() };
    assert_eq!(template.render(&json!([]), None, false, &extra).unwrap(), "False !");
}

#[test]
fn tools_reach_the_template_in_their_order() {
    let template = ChatTemplate::new("{{ tools | tojson }}", "", "").unwrap();
    let tools = json!([{"z": 1, "a": {"m": [null, true, 0.5, "é"]}}]);
    let text = template.render(&json!([]), Some(&tools), false, &Map::new()).unwrap();
    assert_eq!(text, r#"[{"z": 1, "a": {"m": [null, true, 0.5, "é"]}}]"#);
}

#[test]
fn a_refusal_is_told_from_a_failure() {
    let Err(TemplateError::Refused { message }) = render("{{ raise_exception('only ' ~ 'text') }}") else {
        panic!("not refused")
    };
    assert_eq!(message, "only text");
    let nested = "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{% set x = m() %}";
    assert!(matches!(render(nested), Err(TemplateError::Refused { message }) if message == "deep"));
    assert!(matches!(render("{{ nothing.at.all }}"), Err(TemplateError::Failed { .. })));
    assert!(failure("{{ messages.append(1) }}").contains("append"));
}

#[test]
fn what_cannot_be_parsed_is_refused_with_its_line() {
    assert!(failure("a\n{% if %}").contains("chat template:2"));
    assert!(matches!(render("{{ a"), Err(TemplateError::Syntax { .. })));
    assert!(matches!(render("{% include 'other' %}"), Err(TemplateError::Failed { .. })));
}

#[test]
fn work_without_end_is_cut_off() {
    let many = "range(10000)";
    let loops = format!("{{% for a in {many} %}}{{% for b in {many} %}}x{{% endfor %}}{{% endfor %}}");
    let doubling =
        "{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}";
    for endless in
        [loops.as_str(), doubling, "{{ 'x'.ljust(99999999999) }}", "{{ 'x' | indent(99999999999) }}"]
    {
        assert!(matches!(render(endless), Err(TemplateError::Endless)), "{endless}");
    }
    for product in ["'x' * 99999999", "[1] * 99999999", "99999999 * 'x'", "('x' * 9999) * 9999"] {
        assert!(render(&format!("{{{{ {product} }}}}")).is_err(), "{product}");
    }
}

#[test]
fn depth_without_end_is_cut_off() {
    assert!(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").is_err());
    assert!(render("{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}").is_err());
    assert!(render(&"(".repeat(100_000)).is_ok(), "that is text");
    for opened in ["(", "[", "{1:"].map(|piece| piece.repeat(5000)) {
        assert!(render(&format!("{{{{ {opened} }}}}")).is_err());
    }
    for opened in ["{% if 1 %}", "{% for a in b %}", "{% macro a() %}", "{% filter upper %}"] {
        assert!(render(&opened.repeat(250_000 / opened.len())).is_err());
    }
}

#[test]
fn long_chains_do_not_exhaust_the_stack() {
    let chains = ["not ", "-", "1 if 1 else ", "1 + ", "1 ** ", "1 and ", "1 ~ ", "1 == ", "1 * "];
    for chain in chains.map(|link| link.repeat(16_000 / link.len())) {
        let _ = render(&format!("{{{{ {chain}1 }}}}"));
    }
    for chain in ["|abs", ".a", "[0]", "()"].map(|link| link.repeat(16_000 / link.len())) {
        let _ = render(&format!("{{{{ 1{chain} }}}}"));
    }
    let elif = "{% elif 0 %}".repeat(250_000 / 12);
    assert_eq!(render(&format!("{{% if 0 %}}{elif}{{% endif %}}")).unwrap(), "");
}

#[test]
fn values_nested_without_end_neither_print_nor_overflow() {
    let set = "{% set n.x = [n.x] %}{% set n.y = {'a': n.y} %}";
    let many = "{% for i in range(9999) %}";
    let nested = format!("{{% set n = namespace(x=[], y=[]) %}}{many}{set}{{% endfor %}}");
    for use_of_it in
        ["n.x == n.y", "n.x < n.x", "n.x ~ n.y", "{n.x: 1}", "[n.x, n.x] | unique | list | length"]
    {
        let _ = render(&format!("{nested}{{{{ {use_of_it} }}}}"));
    }
    for printed in ["n.x", "n.y", "n.x | tojson", "n.y | string"] {
        assert!(failure(&format!("{nested}{{{{ {printed} }}}}")).contains("levels"), "{printed}");
    }
    let deeper =
        format!("{{% set n = namespace(x=[], y=[]) %}}{many}{many}{set}{{% endfor %}}{{% endfor %}}");
    assert!(matches!(render(&deeper), Err(TemplateError::Endless)));
}
