//! Specs that are accepted, refused, and resolved against installed versions.

use super::*;
use serde_json::json;

struct Newest(watch::Sender<u64>);

impl Installed for Newest {
    fn desired(
        &self,
        profile: &str,
        payload: Option<&str>,
    ) -> Result<BTreeMap<String, Desired>, String> {
        let payload = payload.unwrap_or("p2").to_owned();
        if payload != "p1" && payload != "p2" {
            return Err(format!("there is no payload {payload}"));
        }
        let version = format!("{profile}-{payload}");
        Ok(BTreeMap::from([(
            "*".to_owned(),
            Desired { version, payload },
        )]))
    }

    fn edges(&self, payload: &str) -> Option<Edges> {
        let may_follow = match payload {
            "p1" => vec!["p0".to_owned()],
            "p2" => vec!["p1".to_owned()],
            _ => return None,
        };
        Some(Edges {
            may_follow,
            kubelet: Some(34),
            containerd: None,
            canary: (payload == "p2").then(|| "agnhost:2.63.0".to_owned()),
            platforms: vec!["aws".into()],
            expired: (payload == "p2").then(|| "p2 has expired".to_owned()),
            build: (payload == "p2").then(|| "the second".to_owned()),
        })
    }

    fn refused_builds(&self, profile: &str, payload: &str) -> BTreeMap<String, String> {
        BTreeMap::from([("10.0.17763".into(), format!("{profile} {payload}"))])
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Payloads by what they may follow. Those whose name ends in `x` have expired, and each kubelet's minor version is in its name,
/// as are a platform after `@` and a refused Windows build after `!`.
struct Edged(&'static [(&'static str, &'static [&'static str])]);

impl Installed for Edged {
    fn desired(&self, _: &str, _: Option<&str>) -> Result<BTreeMap<String, Desired>, String> {
        Ok(BTreeMap::new())
    }

    fn edges(&self, payload: &str) -> Option<Edges> {
        let (name, may_follow) = self.0.iter().find(|(name, _)| *name == payload)?;
        let number = name.split(['@', '!']).next()?;
        let kubelet = number.trim_end_matches('x').rsplit('-').next();
        let platform = name.split_once('@').map(|(_, it)| it.to_owned());
        Some(Edges {
            platforms: platform.into_iter().collect(),
            may_follow: may_follow.iter().map(|&it| it.to_owned()).collect(),
            kubelet: kubelet.and_then(|it| it.parse().ok()),
            expired: name.ends_with('x').then(|| "it has expired".to_owned()),
            ..Edges::default()
        })
    }

    fn refused_builds(&self, _: &str, payload: &str) -> BTreeMap<String, String> {
        let build = payload.split_once('!').map(|(_, it)| it.to_owned());
        build.into_iter().map(|it| (it, "no".to_owned())).collect()
    }

    fn changed(&self) -> watch::Receiver<u64> {
        watch::Sender::new(0).subscribe()
    }
}

#[test]
fn the_terms_name_the_installed_payloads_that_lead_to_one() {
    let lead = |edges, payload: &str, servers| -> Vec<String> {
        let installed = Edged(edges);
        let direct = installed.edges(payload).expect("installed").may_follow;
        let found = paths(payload, &direct, (&installed, "windows"), servers);
        let line = |(from, path): (&String, &Vec<String>)| format!("{from}: {}", path.join(" "));
        found.iter().map(line).collect()
    };
    // The shortest, over installed ones only, and from one that is not installed.
    let chain: &[(&str, &[&str])] = &[
        ("d-34", &["c-34"]),
        ("c-34", &["b-34", "a-33"]),
        ("b-34", &["a-33", "0-33"]),
    ];
    assert_eq!(
        lead(chain, "d-34", None),
        ["0-33: b-34 c-34", "a-33: c-34", "b-34: c-34"]
    );
    assert_eq!(
        lead(&[("d-34", &["c-34"])], "d-34", None),
        Vec::<String>::new()
    );
    // An upgrade to one that has expired, or whose kubelet is too new, does not begin.
    let expired: &[(&str, &[&str])] = &[("d-34", &["c-34x"]), ("c-34x", &["b-34"])];
    assert_eq!(lead(expired, "d-34", None), Vec::<String>::new());
    let newer: &[(&str, &[&str])] = &[("d-34", &["c-35"]), ("c-35", &["b-34"])];
    assert_eq!(lead(newer, "d-34", None), ["b-34: c-35"]);
    let oldest = 34;
    let newest = 34;
    let servers = Some(ApiServers { oldest, newest });
    assert_eq!(lead(newer, "d-34", servers), Vec::<String>::new());
    // One that is not for each host of the last is no way there.
    let narrow: &[(&str, &[&str])] = &[("d-34", &["c-34@aws"]), ("c-34@aws", &["b-34"])];
    assert_eq!(lead(narrow, "d-34", None), Vec::<String>::new());
    let same: &[(&str, &[&str])] = &[("d-34@aws", &["c-34@aws"]), ("c-34@aws", &["b-34"])];
    assert_eq!(lead(same, "d-34@aws", None), ["b-34: c-34@aws"]);
    let built: &[(&str, &[&str])] = &[("d-34", &["c-34!10.0.26100"]), ("c-34!10.0.26100", &["b"])];
    assert_eq!(lead(built, "d-34", None), Vec::<String>::new());
    // A circle ends.
    let circle: &[(&str, &[&str])] = &[
        ("d-34", &["c-34"]),
        ("c-34", &["b-34"]),
        ("b-34", &["d-34", "c-34"]),
    ];
    assert_eq!(lead(circle, "d-34", None), ["b-34: c-34"]);
}

fn terms(spec: Value, servers: Option<ApiServers>) -> Result<Terms, PoolError> {
    let settings = PoolSpec::read("windows", &spec, &Value::Null)?
        .resolve(&Newest(watch::Sender::new(0)), servers)?;
    Ok(settings.terms.into_values().next().unwrap_or_default())
}

#[test]
fn a_payload_comes_with_its_terms() {
    let plain = terms(json!({}), None).expect("accepted");
    assert_eq!(
        (plain.may_follow, plain.installed),
        (vec!["p1".into()], vec!["p1".into()])
    );
    assert_eq!((plain.back_from, plain.skew), (None, None));
    assert_eq!(plain.expired.as_deref(), Some("p2 has expired"));
    assert_eq!(plain.canary.as_deref(), Some("agnhost:2.63.0"));
    assert_eq!(
        plain.paths,
        [("p0".to_owned(), vec!["p1".to_owned()])].into()
    );
    let older = terms(json!({"payload": "p1"}), None).expect("accepted");
    assert!(older.installed.is_empty(), "p0 is not installed");
    let back = json!({"payload": "p1", "rollbackFrom": "p2"});
    assert_eq!(
        terms(back, None).expect("accepted").back_from.as_deref(),
        Some("p2")
    );
    let forward = json!({"payload": "p2", "rollbackFrom": "p1"});
    assert_eq!(
        terms(forward, None).expect("accepted").back_from,
        None,
        "no step back"
    );
    let gone = terms(json!({"payload": "p1", "rollbackFrom": "p9"}), None).expect("accepted");
    assert_eq!(gone.back_from, None, "what is not installed proves no edge");
}

#[test]
fn a_kubelet_has_to_fit_the_oldest_and_the_newest_api_server() {
    let skew = |oldest, newest| {
        terms(json!({}), Some(ApiServers { oldest, newest }))
            .expect("accepted")
            .skew
    };
    assert_eq!(skew(34, 34), None);
    assert_eq!(skew(34, 37), None);
    assert!(
        skew(33, 34)
            .expect("too new")
            .contains("newer than the oldest API server, 1.33")
    );
    assert!(
        skew(38, 38)
            .expect("too old")
            .contains("older than the API server, 1.38")
    );
}

fn read(spec: Value) -> Result<PoolSettings, PoolError> {
    PoolSpec::read("windows", &spec, &Value::Null)?.resolve(&Newest(watch::Sender::new(0)), None)
}

fn any(settings: &PoolSettings) -> &str {
    &settings
        .desired_for("10.0.20348")
        .expect("for every build")
        .version
}

#[test]
fn the_terms_name_the_builds_that_the_profile_is_not_for() {
    let terms = terms(json!({"profile": "upstream", "payload": "p1"}), None).expect("accepted");
    assert_eq!(terms.refused_builds["10.0.17763"], "upstream p1");
}

#[test]
fn the_terms_name_the_platforms_of_a_payload() {
    let settings = read(json!({})).expect("accepted");
    assert!(!settings.terms.is_empty());
    assert!(settings.terms.values().all(|it| it.platforms == ["aws"]));
}

#[test]
fn an_empty_spec_is_the_defaults_with_the_newest_payload() {
    let settings = read(json!({})).expect("accepted");
    assert_eq!(any(&settings), "openshift-p2");
    let bare = PoolSettings {
        desired: BTreeMap::new(),
        terms: BTreeMap::new(),
        ..settings
    };
    let defaults = PoolSettings {
        max_repairs: Some(1),
        repair_after_ms: Some(600_000),
        spec_payload: Some("installed".into()),
        verify: true,
        holds_live: true,
        ..PoolSettings::default()
    };
    assert_eq!(bare, defaults);
    let typed = serde_json::to_value(WindowsPoolSpec::default()).expect("JSON");
    assert_eq!(read(typed), read(json!({})), "the API server's defaults");
}

#[test]
fn good_values_are_taken() {
    let percent = read(json!({"strategy": {"maxUnavailable": "10%"}})).expect("accepted");
    assert_eq!(percent.max_unavailable, MaxUnavailable::Percent(10));
    let in_place = read(json!({"strategy": {"type": "InPlace", "maxRepairs": 0}}));
    let in_place = in_place.expect("accepted");
    assert_eq!(
        (in_place.strategy, in_place.max_repairs),
        (Strategy::InPlace, Some(0))
    );
    let soak = read(json!({"soak": "1h1m5s"})).expect("accepted").soak_ms;
    assert_eq!(soak, 3_665_000);
    assert_eq!(
        any(&read(json!({"payload": "p1"})).expect("accepted")),
        "openshift-p1"
    );
    assert_eq!(
        any(&read(json!({"profile": "mine"})).expect("accepted")),
        "mine-p2"
    );
}

#[test]
fn a_pool_names_its_layers_from_the_lowest() {
    assert_eq!(layers(&json!({})), Ok(Vec::new()));
    assert_eq!(
        layers(&Value::Null),
        Ok(Vec::new()),
        "a pool without a spec"
    );
    let named = json!({"layers": ["site.yaml-1", "blue"]});
    let names = layers(&named).expect("accepted");
    assert_eq!(names, ["site.yaml-1", "blue"]);
    assert!(read(named).is_ok());
}

#[test]
fn a_rollback_holds_until_the_specs_payload_is_changed() {
    let status = json!({"override":
        {"payload": "p1", "from": "p2", "insteadOf": "installed", "by": "ada: it crashes"}});
    let read = |spec: Value| {
        PoolSpec::read("windows", &spec, &status)
            .and_then(|spec| spec.resolve(&Newest(watch::Sender::new(0)), None))
            .expect("accepted")
    };
    let back = read(json!({"paused": true}));
    assert_eq!(any(&back), "openshift-p1");
    assert_eq!(back.overridden_by.as_deref(), Some("ada: it crashes"));
    assert_eq!(back.spec_payload.as_deref(), Some("installed"));
    assert_eq!(back.terms["p1"].back_from.as_deref(), Some("p2"));
    let over = read(json!({"payload": "p2"}));
    assert_eq!(any(&over), "openshift-p2");
    assert_eq!(over.overridden_by, None);
    assert!(over.override_ended && !back.override_ended);
    // A worker of an earlier build wrote it, where it was to take one away.
    let itself = json!({"override":
        {"payload": "p2", "from": "p2", "insteadOf": "p2", "by": ""}});
    let spec = PoolSpec::read("windows", &json!({"payload": "p2"}), &itself).expect("accepted");
    let none = spec.resolve(&Newest(watch::Sender::new(0)), None);
    let none = none.expect("accepted");
    assert!(none.override_ended && none.overridden_by.is_none());
}

#[test]
fn another_build_of_a_version_that_the_status_remembers_is_refused() {
    let read = |payload: &str, known: Value| {
        let spec = json!({"payload": payload});
        let status = json!({"builds": known});
        PoolSpec::read("windows", &spec, &status)?.resolve(&Newest(watch::Sender::new(0)), None)
    };
    let same = read("p2", json!({"p2": "the second", "p1": "the first"}));
    let terms = same.expect("accepted").terms;
    assert_eq!(terms["p2"].build.as_deref(), Some("the second"));
    read("p2", json!({"p1": "the first"})).expect("it is not known");
    read("p2", Value::Null).expect("none is known");
    // No key signed p1: a folder's own payload may be built again.
    read("p1", json!({"p1": "the first"})).expect("it has no build");
    let other = read("p2", json!({"p2": "the first"})).expect_err("another build");
    assert_eq!(other.key, "spec.payload");
    let said = other.to_string();
    assert!(
        said.contains("payload p2 is another build") && said.contains("a version of its own"),
        "{said}"
    );
    assert!(
        said.contains("in the pool's status.builds") && said.contains("docs/runbook.md"),
        "{said}"
    );
}

#[test]
fn bad_values_name_their_field() {
    let table = [
        (json!([]), "spec"),
        (json!({"maxUnavailable": 1}), "spec.maxUnavailable"),
        (json!({"payload": ""}), "spec.payload"),
        (json!({"payload": "two words"}), "spec.payload"),
        (json!({"payload": "p3"}), "spec.payload"),
        (json!({"rollbackFrom": "p1"}), "spec.rollbackFrom"),
        (json!({"profile": "../etc"}), "spec.profile"),
        (json!({"layers": "blue"}), "spec.layers"),
        (json!({"layers": [""]}), "spec.layers"),
        (json!({"layers": ["Blue"]}), "spec.layers"),
        (json!({"layers": ["a/b"]}), "spec.layers"),
        (json!({"layers": ["blue", "blue"]}), "spec.layers"),
        (json!({"layers": vec!["a"; 9]}), "spec.layers"),
        (json!({"paused": "yes"}), "spec.paused"),
        (
            json!({"strategy": {"type": "recreate"}}),
            "spec.strategy.type",
        ),
        (
            json!({"strategy": {"maxRepairs": -1}}),
            "spec.strategy.maxRepairs",
        ),
        (json!({"drain": {"timeout": "-1m"}}), "spec.drain.timeout"),
        (json!({"drain": {"timeout": "721h"}}), "spec.drain.timeout"),
        (
            json!({"drain": {"timeout": "0s", "afterTimeout": "Force"}}),
            "spec.drain",
        ),
        (
            json!({"strategy": {"repairAfter": "ten minutes"}}),
            "spec.strategy.repairAfter",
        ),
        (json!({"nodeNames": "*"}), "spec.nodeNames"),
        (json!({"nodeNames": "win-*-*"}), "spec.nodeNames"),
        (json!({"soak": "30"}), "spec.soak"),
        (json!({"soak": "30s1m"}), "spec.soak"),
        (json!({"soak": "99999999999999999999s"}), "spec.soak"),
    ];
    for (spec, key) in table {
        let error = read(spec.clone()).expect_err("refused");
        assert_eq!(error.key, key, "{spec}: {error}");
    }
    for bad in [
        json!(0),
        json!(-1),
        json!("0%"),
        json!("101%"),
        json!("1"),
        json!("+1%"),
    ] {
        let error = read(json!({"strategy": {"maxUnavailable": bad}})).expect_err("refused");
        assert_eq!(error.key, "spec.strategy.maxUnavailable", "{bad}");
    }
}
