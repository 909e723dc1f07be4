//! A recording without the names and addresses of its host.

use std::{cmp::Reverse, net::IpAddr};

use dormer_host::ops::{Answer, Operation, Value as Registered};
use serde_json::Value;

use crate::recording::RecordedLine;

/// Values of the registry that name a host.
const NAMES: [&str; 7] = [
    "ActiveComputerName",
    "ComputerName",
    "DhcpDomain",
    "Domain",
    "Hostname",
    "NV Domain",
    "NV Hostname",
];
/// Folder with a folder for each user.
const USERS: &str = r"\users\";
/// Users, folders and workgroups that every Windows has.
const WELL_KNOWN: [&str; 7] = [
    "administrator",
    "all users",
    "default",
    "default user",
    "public",
    "system",
    "workgroup",
];

/// What names a host, each with what is written in its place.
#[derive(Debug)]
pub struct StandIns(Vec<(String, String)>);

impl StandIns {
    /// For these texts, and for what a recording has of names, addresses and users of its host.
    pub fn of(lines: &[RecordedLine], private: &[String]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let recorded = lines.iter().flat_map(named);
        for name in private.iter().cloned().chain(recorded) {
            let name = name.to_ascii_lowercase();
            let known = name.is_empty() || WELL_KNOWN.contains(&&*name) || names.contains(&name);
            if !known && !is_anywhere(&name) {
                names.push(name);
            }
        }
        // The core makes a full name of its two parts: so does a replay.
        let whole = |it: &String| {
            let parts = it.split_once('.');
            parts.is_some_and(|(name, domain)| has(&names, name) && has(&names, domain))
        };
        let mut left: Vec<String> = names.iter().filter(|it| !whole(it)).cloned().collect();
        left.sort_by_key(|it| Reverse(it.len()));
        let numbered = left.into_iter().zip(1..);
        Self(
            numbered
                .map(|(name, number)| {
                    let other = stand_in(&name, number);
                    (name, other)
                })
                .collect(),
        )
    }

    /// The text with stand-ins, for whole words of any case. An address gets another one, which is read as an address.
    pub fn text(&self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let of_a_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let mut made = String::new();
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            let found = self.0.iter().find(|(from, _)| {
                let inside = || {
                    text[..at].ends_with(of_a_word)
                        || text[at + from.len()..].starts_with(of_a_word)
                };
                lower[at..].starts_with(from.as_str()) && !inside()
            });
            match found {
                Some((from, to)) => {
                    made += to;
                    at += from.len();
                }
                None => {
                    made.push(next);
                    at += next.len_utf8();
                }
            }
        }
        made
    }

    /// The recording with stand-ins, in what was asked and answered.
    ///
    /// # Errors
    /// A line that is none any more: the host is named as a part of it.
    pub fn lines(&self, lines: &[RecordedLine]) -> Result<Vec<RecordedLine>, String> {
        lines.iter().map(|line| self.line(line)).collect()
    }

    fn line(&self, line: &RecordedLine) -> Result<RecordedLine, String> {
        let unreadable = |error: serde_json::Error| {
            format!("a line cannot be read with stand-ins for the host's names: {error}")
        };
        let mut line = serde_json::to_value(line).map_err(unreadable)?;
        for part in ["operation", "outcome", "answer", "why"] {
            if let Some(value) = line.get_mut(part) {
                self.replace(value);
            }
        }
        serde_json::from_value(line).map_err(unreadable)
    }

    fn replace(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|it| self.replace(it)),
            Value::Object(fields) => {
                let tagged = |key: &str, it: &Value| key == "operation" && it.is_string();
                let others = fields.iter_mut().filter(|(key, it)| !tagged(key, it));
                others.for_each(|(_, it)| self.replace(it));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether it is an address that names no host.
fn is_anywhere(text: &str) -> bool {
    text.parse()
        .is_ok_and(|address: IpAddr| address.is_loopback() || address.is_unspecified())
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|it| it == name)
}

fn stand_in(text: &str, number: usize) -> String {
    match text.parse::<IpAddr>() {
        // RFC 5737 and RFC 3849: for documents.
        Ok(IpAddr::V4(_)) if number < 255 => format!("192.0.2.{number}"),
        Ok(IpAddr::V4(_)) => format!("198.51.100.{}", number % 255),
        Ok(IpAddr::V6(_)) => format!("2001:db8::{number}"),
        // RFC 7042.
        Err(_) if is_mac(text) => format!("00-00-5E-00-53-{:02X}", number % 256),
        // In small letters, as the core writes full names.
        Err(_) => format!("host-{number}"),
    }
}

fn is_mac(text: &str) -> bool {
    let mut parts = text.split('-');
    let byte = |it: &str| it.len() == 2 && it.chars().all(|c| c.is_ascii_hexdigit());
    parts.all(byte) && text.len() == 17
}

/// What a line has of names, addresses and users of its host.
fn named(line: &RecordedLine) -> Vec<String> {
    match line {
        RecordedLine::Performed { operation, outcome } => {
            let mut names = match &**outcome {
                Ok(answer) => of_answer(operation, answer),
                Err(_) => Vec::new(),
            };
            let outcome = serde_json::to_value(outcome);
            users(&outcome.unwrap_or_default(), &mut names);
            names
        }
        RecordedLine::Answered { answer } => {
            let facts = &answer["facts"];
            let mut names: Vec<String> = ["hostname", "hostname_pending", "fqdn"]
                .iter()
                .filter_map(|it| facts[*it].as_str().map(str::to_owned))
                .collect();
            users(answer, &mut names);
            names
        }
        RecordedLine::Host { .. }
        | RecordedLine::Row { .. }
        | RecordedLine::Call { .. }
        | RecordedLine::Shown { .. } => Vec::new(),
    }
}

fn of_answer(operation: &Operation, answer: &Answer) -> Vec<String> {
    match (operation, answer) {
        (_, Answer::SystemRead(system)) => vec![system.dns_host_name.clone()],
        // A workgroup's name may be a company's as well.
        (_, Answer::DomainRead(domain)) => vec![domain.name.clone()],
        (_, Answer::InterfaceList(cards)) => cards
            .iter()
            .flat_map(|card| {
                let addresses = card.addresses.iter().map(|it| it.ipv4.clone());
                let gateways = card.gateways.iter().cloned();
                addresses.chain(gateways).chain([card.mac.clone()])
            })
            .collect(),
        (Operation::RegistryRead(ask), Answer::RegistryRead(Registered::Text(name)))
            if NAMES.iter().any(|it| it.eq_ignore_ascii_case(&ask.name)) =>
        {
            vec![name.clone()]
        }
        _ => Vec::new(),
    }
}

/// Names of users in paths of their folders.
fn users(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let lower = text.to_ascii_lowercase();
            for (at, _) in lower.match_indices(USERS) {
                let rest = &text[at + USERS.len()..];
                let name = rest.split(['\\', '"']).next();
                names.extend(name.map(str::to_owned));
            }
        }
        Value::Array(values) => values.iter().for_each(|it| users(it, names)),
        Value::Object(fields) => fields.values().for_each(|it| users(it, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
