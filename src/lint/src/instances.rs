//! Rules for the ConfigMap `windows-instances`: hosts that people bring themselves.

use crate::{common::Site, documents::Object, finding::Finding};
use dormer_profile::yaml_tree::{Key, Node};
use std::collections::BTreeMap;

/// Name of the ConfigMap.
const NAME: &str = "windows-instances";

pub(crate) fn check(object: &Object<'_>, _: &Site<'_>, found: &mut Vec<Finding>) {
    if object.name() != Some(NAME) {
        return;
    }
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (key, value) in object
        .root
        .get("data")
        .map(Node::entries)
        .unwrap_or_default()
    {
        address(key, found);
        entry(value, found);
        let host = key.name.trim_end_matches('.').to_ascii_lowercase();
        if let Some(line) = known.insert(host, key.position.line) {
            let message = format!("`{}` is the host of line {line}", key.name);
            found.push(Finding::new("instance-twice", key.position, message));
        }
    }
    if let Some((key, _)) = object.root.entry("binaryData") {
        let message = "`binaryData` is not read";
        found.push(
            Finding::new("instance-entry", key.position, message)
                .mend("write the entries below `data`"),
        );
    }
}

fn address(key: &Key, found: &mut Vec<Finding>) {
    let name = key.name.as_str();
    let v4 = name.parse::<std::net::Ipv4Addr>().is_ok();
    let label = |label: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(letters)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_name = name.len() <= 253 && name.trim_end_matches('.').split('.').all(label);
    // All numbers and dots, and no address: 10.1.42, 10.1.42.300.
    let numbers = name.chars().all(|c| c.is_ascii_digit() || c == '.');
    if v4 || (is_name && !numbers) {
        return;
    }
    let why = if name.contains("://") {
        "is a URL"
    } else if name.parse::<std::net::Ipv6Addr>().is_ok() {
        "is an IPv6 address"
    } else if name
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        "has a port"
    } else if name.contains('/') {
        "is a network"
    } else {
        "is neither an IPv4 address nor a DNS name"
    };
    found.push(Finding::new(
        "instance-address",
        key.position,
        format!("`{name}` {why}"),
    ));
}

fn entry(value: &Node, found: &mut Vec<Finding>) {
    let text = value.text().unwrap_or_default().trim();
    let user = text.strip_prefix("username=");
    if user.is_some_and(|user| !user.is_empty() && !user.contains(['\n', ' ', '=', ','])) {
        return;
    }
    let message = match text.is_empty() {
        true => "the entry is empty".to_owned(),
        // A password may stand here.
        false if text.to_ascii_lowercase().contains("pass") => {
            "the entry has more than a user".to_owned()
        }
        false => format!(
            "`{}` names no user",
            text.lines().next().unwrap_or_default()
        ),
    };
    found.push(Finding::new("instance-entry", value.position, message));
}
