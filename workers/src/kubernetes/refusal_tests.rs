//! Tests of what refusals of an eviction mean. The answers are those of a kube-apiserver 1.36 and 1.33.

use super::*;
use serde_json::{Value, json};

fn answer(code: u16, message: &str, cause: Option<(&str, &str)>) -> Status {
    let causes: Vec<Value> = cause
        .into_iter()
        .map(|(r, m)| json!({"reason": r, "message": m}))
        .collect();
    serde_json::from_value(json!({"kind": "Status", "status": "Failure", "code": code,
        "message": message, "reason": "", "details": {"name": "p", "causes": causes}}))
    .expect("a status")
}

fn meant(code: u16, message: &str, cause: Option<(&str, &str)>) -> Option<String> {
    Refusal::of(&answer(code, message, cause)).map(|refusal| refusal.to_string())
}

#[test]
fn each_refusal_says_what_holds_the_pod_and_what_mends_it() {
    let budget = "The disruption budget strict needs 2 healthy pods and has 2 currently";
    let full = "the PodDisruptionBudget strict asks for 2 healthy pods, and 2 are healthy";
    let behind = "The disruption budget strict needs 5 healthy pods and has 6 currently";
    let since = "the PodDisruptionBudget strict asks for 5 healthy pods; 6 were counted, and those that were just evicted";
    let other = "The disruption budget strict is still being processed by the server.";
    let violated = "Cannot evict pod as it would violate the pod's disruption budget.";
    let twice = "This pod has more than one PodDisruptionBudget, which the eviction subresource \
                 does not support.";
    let rbac = r#"pods "p" is forbidden: User "system:serviceaccount:dormer:dormer-worker" cannot create resource "pods/eviction" in API group "" in the namespace "n""#;
    let ends = r#"pods "p" is forbidden: unable to create new content in namespace n because it is being terminated"#;
    let webhook = r#"admission webhook "guard.example.com" denied the request: not before Monday"#;
    let policy = "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'guard' with binding 'all' denied request: no";
    let fails = r#"Internal error occurred: failed calling webhook "guard.example.com": timeout"#;
    for (code, message, cause, why) in [
        (429, violated, Some(("DisruptionBudget", budget)), full),
        (429, violated, Some(("DisruptionBudget", behind)), since),
        (429, violated, Some(("DisruptionBudget", other)), other),
        (429, violated, Some(("DisruptionBudget", "")), violated),
        (500, twice, None, "Delete all of its budgets but one"),
        (
            500,
            fails,
            None,
            "the API server cannot evict it: Internal error occurred: failed",
        ),
        (
            403,
            rbac,
            None,
            "the cluster's rules do not let dormer move it: pods \"p\" is forbidden",
        ),
        (
            403,
            ends,
            Some(("NamespaceTerminating", "n")),
            "its namespace is being deleted",
        ),
        (
            403,
            webhook,
            None,
            "the API server refuses: admission webhook \"guard.example.com\"",
        ),
        (
            403,
            policy,
            None,
            "the API server refuses: pods \"p\" is forbidden: Validating",
        ),
        (422, policy, None, "the API server refuses: "),
        (400, webhook, None, "the API server refuses: "),
        (
            403,
            "pdb disruptions allowed is negative",
            None,
            "the API server refuses: pdb",
        ),
    ] {
        let meant = meant(code, message, cause).unwrap_or_else(|| panic!("{code} {message}"));
        assert!(meant.contains(why), "{code}: {meant}");
    }
}

#[test]
fn the_budgets_that_keep_a_pod_are_named_in_a_field() {
    let one = "The disruption budget strict needs 2 healthy pods and has 2 currently";
    let cause = Some(("DisruptionBudget", one));
    let refusal = Refusal::of(&answer(429, "Cannot evict pod.", cause)).expect("a refusal");
    assert_eq!(refusal.budgets(), ["strict"]);
    let other = Refusal::Denied("The disruption budget x".into());
    assert!(
        other.budgets().is_empty(),
        "a webhook's words name no budget"
    );
}

#[test]
fn what_says_nothing_about_the_pod_is_no_refusal() {
    for (code, message) in [
        (401, "Unauthorized"),
        (404, "pods \"p\" not found"),
        (409, "the UID in the precondition does not match"),
        (429, "the server has received too many requests"),
        (503, "apiserver is shutting down"),
        (504, "etcdserver: request timed out"),
    ] {
        assert_eq!(meant(code, message, None), None, "{code}");
    }
}

#[test]
fn several_budgets_are_named_with_the_cure() {
    let names = |n: usize| (0..n).map(|n| format!("b{n}")).collect::<Vec<_>>();
    let said = |n| {
        Refusal::Budgets {
            names: names(n),
            said: String::new(),
        }
        .to_string()
    };
    assert_eq!(
        said(2),
        "the disruption budgets b0, b1 match it, and no pod with more than one can be evicted: delete all of them but one"
    );
    assert!(said(7).starts_with("the disruption budgets b0, b1, b2, b3, b4 and 2 more match it"));
}

#[test]
fn budgets_match_by_their_selectors() {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"labels": {"app": "db", "tier": "x"}}}))
            .expect("a pod");
    let bare: Pod = serde_json::from_value(json!({"metadata": {}})).expect("a pod");
    let budget = |name: &str, selector: Value| -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"selector": selector}}))
            .expect("a budget")
    };
    let all = || {
        vec![
            budget("z-labels", json!({"matchLabels": {"app": "db"}})),
            budget("other", json!({"matchLabels": {"app": "web"}})),
            budget("none", Value::Null),
            budget("everything", json!({})),
            budget(
                "in",
                json!({"matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["x", "y"]}]}),
            ),
            budget(
                "absent",
                json!({"matchExpressions": [
                {"key": "tier", "operator": "DoesNotExist"}]}),
            ),
            budget(
                "nonsense",
                json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
            ),
        ]
    };
    assert_eq!(matching(all(), &pod), ["everything", "in", "z-labels"]);
    assert_eq!(matching(all(), &bare), ["absent", "everything"]);
}

#[test]
fn what_a_webhook_says_without_end_is_cut() {
    assert_eq!(short("a word".into()), "a word");
    let long = short("ü".repeat(2_000));
    assert!(
        long.len() <= WHY_BYTES_MAX + 4 && long.ends_with("ü …"),
        "{}",
        long.len()
    );
}
