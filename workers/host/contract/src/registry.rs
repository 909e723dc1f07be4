//! Rows about the registry.

use dormer_host::ops::{
    Answer, Ask, Bytes, Operation, RegistryDelete, RegistryList, RegistryNames, RegistryRead,
    RegistryWrite, Value,
};

use crate::{
    Row, Scope,
    Wanted::{self, Done, Refused},
};

const QUERY: &str = "sdk-api nf-winreg-regqueryvalueexw";
const WRITE: &str = "sdk-api nf-winreg-regsetvalueexw";
const OPEN: &str = "sdk-api nf-winreg-regopenkeyexw";

fn read(key: &str, name: &str) -> Operation {
    RegistryRead {
        key: key.into(),
        name: name.into(),
    }
    .operation()
}

fn write(key: &str, name: &str, value: Value) -> Operation {
    RegistryWrite {
        key: key.into(),
        name: name.into(),
        value,
    }
    .operation()
}

fn delete(key: &str, name: &str) -> Operation {
    RegistryDelete {
        key: key.into(),
        name: name.into(),
    }
    .operation()
}

fn list(key: &str) -> Operation {
    RegistryList { key: key.into() }.operation()
}

fn is(value: Value) -> Wanted {
    Wanted::Answer(
        "the value that was written",
        Box::new(move |answer| matches!(answer, Answer::RegistryRead(found) if *found == value)),
    )
}

fn number() -> Value {
    Value::Number(7)
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let mut rows = Vec::new();
    let below = |name: &str| format!(r"SOFTWARE\{}\{name}", scope.prefix);
    let values: [(&str, Value); 9] = [
        ("a text is kept", Value::Text("C:\\k – ü".into())),
        ("an empty text is kept", Value::Text(String::new())),
        (
            "a text with variables is kept as it is",
            Value::Expand(r"%SystemRoot%\x".into()),
        ),
        (
            "a list of texts is kept in its order",
            Value::Texts(vec!["b=2".into(), "a=1".into()]),
        ),
        ("an empty list is kept", Value::Texts(vec![])),
        ("a number is kept", Value::Number(u32::MAX)),
        ("a long number is kept", Value::Long(1 << 40)),
        ("bytes are kept", Value::Bytes(Bytes(vec![0, 1, 255]))),
        ("no bytes are kept", Value::Bytes(Bytes(vec![]))),
    ];
    for (n, (name, value)) in values.into_iter().enumerate() {
        let key = below(&format!("value{n}"));
        let wanted = is(value.clone());
        rows.push(
            Row::new(name, vec![], write(&key, "it", value), Done, WRITE)
                .then(read(&key, "it"), wanted),
        );
    }
    let key = below("default");
    rows.push(
        Row::new(
            "a key has a value without a name",
            vec![],
            write(&key, "", number()),
            Done,
            WRITE,
        )
        .then(read(&key, ""), is(number())),
    );
    let key = below(r"deep\deeper");
    rows.push(
        Row::new(
            "the keys above are made, too",
            vec![],
            write(&key, "it", number()),
            Done,
            "sdk-api nf-winreg-regcreatekeyexw",
        )
        .then(read(&key, "it"), is(number())),
    );
    let key = below("case");
    rows.push(
        Row::new(
            "names differ by more than case",
            vec![write(&key, "Hostname", number())],
            read(&key.to_uppercase(), "hostNAME"),
            is(number()),
            QUERY,
        )
        .liar(Ok(Answer::RegistryRead(Value::Number(8)))),
    );
    let key = below("again");
    rows.push(
        Row::new(
            "a value is written over, whatever its type was",
            vec![write(&key, "it", number())],
            write(&key, "it", Value::Text("x".into())),
            Done,
            WRITE,
        )
        .then(read(&key, "it"), is(Value::Text("x".into()))),
    );
    rows.push(
        Row::new(
            "a key that is not there has no value",
            vec![],
            read(&below("absent"), "it"),
            Refused(&[2]),
            OPEN,
        )
        .liar(Ok(Answer::RegistryRead(number()))),
    );
    let key = below("empty");
    rows.push(
        Row::new(
            "a value that is not there is told by the same number",
            vec![write(&key, "other", number())],
            read(&key, "it"),
            Refused(&[2]),
            QUERY,
        )
        .liar(Ok(Answer::RegistryRead(number()))),
    );
    let key = below("delete");
    rows.push(
        Row::new(
            "a value is deleted, and its key stays",
            vec![write(&key, "it", number()), write(&key, "other", number())],
            delete(&key, "it"),
            Done,
            "sdk-api nf-winreg-regdeletevaluew",
        )
        .then(read(&key, "it"), Refused(&[2]))
        .then(read(&key, "other"), is(number())),
    );
    let key = below("delete2");
    rows.push(Row::new(
        "a value that is not there is not deleted",
        vec![write(&key, "other", number())],
        delete(&key, "it"),
        Refused(&[2]),
        "sdk-api nf-winreg-regdeletevaluew",
    ));
    let key = below("list");
    rows.push(
        Row::new(
            "keys and values are listed",
            vec![
                write(&key, "b", number()),
                write(&key, "a", number()),
                write(&format!(r"{key}\k"), "it", number()),
            ],
            list(&key),
            Wanted::Answer(
                "one key, two values",
                Box::new(|answer| {
                    let Answer::RegistryList(names) = answer else {
                        return false;
                    };
                    let mut values = names.values.clone();
                    values.sort();
                    names.keys == ["k"] && values == ["a", "b"]
                }),
            ),
            "sdk-api nf-winreg-regenumvaluew",
        )
        .liar(Ok(Answer::RegistryList(RegistryNames::default()))),
    );
    rows.push(
        Row::new(
            "a key that is not there is not listed",
            vec![],
            list(&below("absent")),
            Refused(&[2]),
            OPEN,
        )
        .liar(Ok(Answer::RegistryList(RegistryNames::default()))),
    );
    rows
}
