//! The two shapes of an Event: the core group's, in which it is kept, and its own group's.

use serde_json::{Value, json};

const PAIRS: [(&str, &str); 3] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
];
const TIMES: [(&str, &str); 2] = [
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
];

/// Turns an Event of either shape into the core group's.
pub fn to_core(event: &mut Value) {
    rename(event, |(own, core)| (own, core));
    if let Some(controller) = event.get("reportingController").cloned() {
        event["reportingComponent"] = controller;
        if let Some(fields) = event.as_object_mut() {
            fields.remove("reportingController");
        }
    }
    event["apiVersion"] = json!("v1");
}

/// Turns a kept Event into its own group's shape.
pub fn to_own(event: &mut Value) {
    rename(event, |(own, core)| (core, own));
    if let Some(component) = event.get("reportingComponent").cloned() {
        event["reportingController"] = component;
    }
    if event["eventTime"].is_null() {
        event["eventTime"] = event["deprecatedLastTimestamp"].clone();
    }
    event["apiVersion"] = json!("events.k8s.io/v1");
}

fn rename(
    event: &mut Value,
    mapping: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(fields) = event.as_object_mut() else {
        return;
    };
    for pair in PAIRS.into_iter().chain(TIMES) {
        let (from, to) = mapping(pair);
        if let Some(value) = fields.remove(from) {
            fields.entry(to).or_insert(value);
        }
    }
}
