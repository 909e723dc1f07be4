//! Accepted and refused YAML, the messages, and the written form.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::{ignition::kubelet_facts, layers::Layer, payload::Manifest, values::Values};

/// A document that expands takes minutes and gigabytes; a refusal takes some tenths of a second, and took five seconds
/// beside three builds.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    name: String,
    count: u64,
    quiet: bool,
    list: Vec<String>,
    rules: BTreeMap<String, Rule>,
    more: Option<Rule>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    port: u16,
    kind: Protocol,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// `aliases` aliases of one text of `bytes` bytes, as a list in brackets: its anchor first.
fn bomb(bytes: usize, aliases: usize) -> String {
    let text = "x".repeat(bytes);
    format!("[&a {text}, {}]", vec!["*a"; aliases].join(","))
}

fn refused<T: fmt::Debug, E: fmt::Display>(read: impl FnOnce() -> Result<T, E>) -> String {
    let started = Instant::now();
    let error = read().expect_err("refused").to_string();
    let took = started.elapsed();
    assert!(took < REFUSED_WITHIN, "{took:?}: {error}");
    assert!(error.len() < 1_000, "{error}");
    error
}

#[test]
fn an_alias_bomb_is_refused_by_every_reader() {
    let many = "more than 1000 aliases (`*name`): write out what they repeat";
    // 170,000 aliases of 12 kB: 2 GB.
    let flat = bomb(12_000, 170_000);

    let layer = format!("host: {{files: {{'C:\\a': {{json: {flat}}}}}}}");
    let error = refused(|| Layer::parse("user", &layer));
    assert!(
        error.starts_with("user: line 1 column ") && error.ends_with(many),
        "{error}"
    );

    let manifest = format!("version: 1.0.0\nkubelet: '1.36'\nfiles: []\nwindows_builds: {flat}");
    let error = refused(|| Manifest::parse(&manifest));
    assert!(
        error.starts_with("line 4 column ") && error.ends_with(many),
        "{error}"
    );

    let facts = format!("node_ip: 192.0.2.1\nsubnet: {flat}");
    let error = refused(|| Values::parse_over(&Values::example("aws"), &facts));
    assert!(
        error.starts_with("line 2 column ") && error.ends_with(many),
        "{error}"
    );

    let error = refused(|| documents(&format!("a: 1\n---\na: {flat}")));
    assert!(
        error.contains(many) && error.contains(" at line 3 column "),
        "{error}"
    );

    // A file of a MachineConfig is shorter: 60,000 aliases of 50 kB, 3 GB.
    let url = format!("data:,providers: {}", bomb(50_000, 60_000)).replace(' ', "%20");
    let path = "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml";
    let config = json!({
        "systemd": {"units": [{"name": "kubelet.service", "contents": "ExecStart=kubelet"}]},
        "storage": {"files": [{"path": path, "contents": {"source": url}}]},
    });
    let error = refused(|| kubelet_facts(&config));
    let much = "more than 16 MiB of text; an alias (`*name`) counts as all that it repeats";
    assert!(error.contains(path) && error.contains(much), "{error}");
}

#[test]
fn a_bomb_of_few_aliases_is_refused_by_what_it_expands_to() {
    let mut texts = format!("a0: &a0 {}\n", "x".repeat(100_000));
    let mut values = "a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n".to_owned();
    let mut merged = "a0: &a0 {k: v}\n".to_owned();
    for n in 1..9 {
        let below = vec![format!("*a{}", n - 1); 10].join(",");
        texts.push_str(&format!("a{n}: &a{n} [{below}]\n"));
        values.push_str(&format!("a{n}: &a{n} [{below}]\n"));
        merged.push_str(&format!("a{n}: &a{n} {{<<: [{below}]}}\n"));
    }
    let write_out = "an alias (`*name`) counts as all that it repeats, so write out what is needed";
    let error = refused(|| from_str::<Value>(&texts));
    assert!(
        error.contains(&format!("more than 16 MiB of text; {write_out}")),
        "{error}"
    );
    let error = refused(|| from_str::<Value>(&values));
    assert!(
        error.contains(&format!("more than 250000 values; {write_out}")),
        "{error}"
    );
    let error = refused(|| from_str::<Value>(&merged));
    assert!(error.contains(write_out), "{error}");
}

#[test]
fn a_few_aliases_are_taken() {
    let text = "rules: {a: &web {port: 80}, b: *web, c: {<<: *web, kind: udp}}\nmore: *web";
    let read: Settings = from_str(text).expect("settings");
    let web = || Rule {
        port: 80,
        kind: Protocol::Tcp,
    };
    assert_eq!(read.more, Some(web()));
    assert_eq!(read.rules["b"], web());
    assert_eq!(
        read.rules["c"],
        Rule {
            port: 80,
            kind: Protocol::Udp
        }
    );
}

#[test]
fn what_is_nested_to_the_limit_fits_a_thread() {
    let nested = |by: usize| format!("{}1{}", "[".repeat(by), "]".repeat(by));
    let read = move || {
        from_str::<Value>(&nested(DEPTH_MAX)).expect("read");
        documents(&nested(DEPTH_MAX)).expect("read");
        let error = from_str::<Value>(&nested(DEPTH_MAX + 1)).expect_err("refused");
        assert!(error.reason.contains("nested more than 64 deep"), "{error}");
        let block: String = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
        let error = from_str::<Value>(&block).expect_err("refused");
        assert!(error.reason.contains("nested more than 64 deep"), "{error}");
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread
        .spawn(read)
        .expect("a thread")
        .join()
        .expect("it fits");
}

#[test]
fn a_mistake_has_line_column_path_and_what_was_found() {
    let table = [
        (
            "nam: x",
            "unknown field `nam`, expected one of name, count, quiet, list, rules, more at line 1 column 1",
        ),
        (
            "name: a\nname: b",
            "duplicate mapping key `name` is not allowed here at line 2 column 1",
        ),
        (
            "name: a\n---\nname: b",
            "only single YAML document expected but multiple found at line 3 column 1",
        ),
        (
            "name: [a]",
            "name: expected string scalar, found `[` at line 1 column 7",
        ),
        ("name:", "name: null is not allowed here at line 1 column 5"),
        ("name: 'a", "unclosed quote at line 1 column 7"),
        ("name: *a", "reference to unknown value at line 1 column 7"),
        ("count: many", "count: `many` is no u64 at line 1 column 8"),
        ("count: -1", "count: `-1` is no u64 at line 1 column 8"),
        (
            "quiet: yes",
            "quiet: `yes` is neither true nor false at line 1 column 8",
        ),
        (
            "list: a",
            "list: expected sequence, found `a` at line 1 column 7",
        ),
        (
            "rules:\n  web: 5",
            "rules.web: expected mapping, found `5` at line 2 column 8",
        ),
        (
            "rules:\n  web:\n    port: 99999",
            "rules.web.port: `99999` is no u16 at line 3 column 11",
        ),
        (
            "rules:\n  web: {kind: icmp}",
            "rules.web.kind: unknown variant `icmp`, expected one of tcp, udp at line 2 column 15",
        ),
        (
            "rules: {web: {prot: 80}}",
            "rules.web: unknown field `prot`, expected one of port, kind at line 1 column 15",
        ),
        (
            "rules: {a: {}, a: {}}",
            "rules: duplicate mapping key `a` is not allowed here at line 1 column 16",
        ),
        (
            "list: [a, b",
            "list: unclosed bracket '[' at line 1 column 7",
        ),
    ];
    for (text, wanted) in table {
        let error = from_str::<Settings>(text).expect_err(text).to_string();
        assert_eq!(error, wanted, "{text}");
    }
}

#[test]
fn a_plain_word_means_what_yaml_1_2_says() {
    let table = [
        ("yes", json!("yes")),
        ("off", json!("off")),
        ("0644", json!("0644")),
        ("1_000", json!("1_000")),
        ("12:30:45", json!("12:30:45")),
        ("2026-11-23", json!("2026-11-23")),
        ("10.0.20348", json!("10.0.20348")),
        ("True", json!(true)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("1.10", json!(1.1)),
        ("~", json!(null)),
        ("", json!(null)),
        ("'5'", json!("5")),
        ("!!str 5", json!("5")),
    ];
    for (word, wanted) in table {
        let read: Value = from_str(&format!("a: {word}")).expect(word);
        assert_eq!(read["a"], wanted, "{word}");
    }
    // A field of type text takes a number without quotes.
    let read: Settings = from_str("name: 1.30").expect("settings");
    assert_eq!(read.name, "1.30");
}

#[test]
fn documents_are_taken_one_by_one() {
    let read = documents("# a comment\n---\na: 1\n---\n---\nb: 2\n...\n").expect("documents");
    assert_eq!(read, [json!({"a": 1}), json!({"b": 2})]);
    assert_eq!(documents(""), Ok(vec![]));
}

#[test]
fn what_is_written_is_read_again() {
    let long = "word ".repeat(60);
    let texts = [
        "",
        " lead",
        "trail ",
        "yes",
        "true",
        "null",
        "~",
        "5",
        "1.30",
        "0644",
        "1e3",
        "0x1F",
        "12:30",
        "2026-11-23",
        "- x",
        "a: b",
        "#x",
        "a #b",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a`",
        "'",
        "\"",
        "{{ $value }}",
        "C:\\k\\x.exe",
        "line\nline\n",
        "line\nline",
        "\n",
        "\n\nx\n\n",
        "  a\n b\n",
        "x \ny",
        "crlf\r\n",
        "tab\tx",
        "\u{1b}[0m",
        "é ü",
        "\u{feff}",
        "\u{2028}",
        "---",
        "...",
        "a: |\n  b",
        "?",
        ":",
        "-",
        "[",
        "]",
        "n",
        "y",
        &long,
    ];
    for text in texts {
        let value = json!({"a": text, "b": [text, {text: [text]}], "c": {"d": text}});
        let written = to_string(&value).expect("YAML");
        assert_eq!(from_str(&written), Ok(value), "{text:?}:\n{written}");
    }
}

#[test]
fn what_is_written_is_easy_to_read() {
    let value = json!({
        "name": "win-a", "version": "11.0.0", "build": "10.0.20348", "answer": "no", "count": 3, "share": 0.5,
        "none": null, "empty": {"list": [], "map": {}, "text": ""},
        "items": [{"a": 1, "b": ["x", "y"]}, {"a": 2}],
        "script": "line one\nline two\n",
        "long": "a sentence that stays on its line, however long it may be, because people search for its words by grep",
    });
    let wanted = r#"answer: "no"
build: "10.0.20348"
count: 3
empty:
  list: []
  map: {}
  text: ""
items:
- a: 1
  b:
  - x
  - "y"
- a: 2
long: a sentence that stays on its line, however long it may be, because people search for its words by grep
name: win-a
none: null
script: |
  line one
  line two
share: 0.5
version: "11.0.0"
"#;
    assert_eq!(to_string(&value).expect("YAML"), wanted);
}
