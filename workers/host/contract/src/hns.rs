//! Rows about HNS on a host with the feature Containers.

use dormer_host::ops::{Answer, Ask, HnsCall, Operation, Outcome};

use crate::{
    Needs, Row, Scope,
    Wanted::{self, Refused},
};

const ERRORS: &str = "Virtualization-Documentation, HCN Error Code";
/// An id that nothing has.
const NOBODYS: &str = "00000000-0000-4000-8000-000000000001";

fn call(method: &str, path: &str, body: &str) -> Operation {
    HnsCall {
        method: method.into(),
        path: path.into(),
        body: body.into(),
    }
    .operation()
}

fn create(name: &str, prefix: &str) -> Operation {
    let subnet = format!(r#"{{"AddressPrefix":"{prefix}","GatewayAddress":"10.9.9.1"}}"#);
    let body = format!(r#"{{"Name":"{name}","Type":"L2Bridge","Subnets":[{subnet}]}}"#);
    call("POST", "/networks", &body)
}

fn says(response: &str) -> Outcome {
    Ok(Answer::HnsCall(response.into()))
}

/// A success whose response holds these texts, and not the other ones.
fn response(what: &'static str, holds: Vec<String>, lacks: Vec<String>) -> Wanted {
    Wanted::Answer(
        what,
        Box::new(move |answer| {
            let Answer::HnsCall(response) = answer else {
                return false;
            };
            response.contains(r#""Success":true"#)
                && holds.iter().all(|text| response.contains(text))
                && lacks.iter().all(|text| !response.contains(text))
        }),
    )
}

pub(crate) fn rows(scope: &Scope) -> Vec<Row> {
    let name = format!("{}-network", scope.prefix);
    let other = format!("{}-other", scope.prefix);
    let named = |name: &str| vec![format!(r#""Name":"{name}""#)];
    let networks = || call("GET", "/networks", "");
    let endpoint = format!(r#"{{"Name":"dormer","VirtualNetwork":"{NOBODYS}"}}"#);
    let attach = r#"{"SystemType":"Host","CompartmentId":1}"#;
    let rows = vec![
        Row::new(
            "an answer of success lists the networks",
            vec![],
            networks(),
            response("a list", vec![r#""Output":["#.into()], named(&name)),
            "hcsshim internal/hns hnsfuncs.go",
        )
        .liar(says("")),
        Row::new(
            "a network is there once it was made",
            vec![],
            create(&name, "10.9.9.0/24"),
            response("an id", vec![r#""ID":""#.into()], vec![]),
            "hcsshim internal/hns hnsnetwork.go",
        )
        .then(
            networks(),
            response("it, with its prefix", named(&name), vec![]),
        )
        .then(
            networks(),
            response("its prefix", vec!["10.9.9.0/24".into()], vec![]),
        )
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "no second network has a name",
            vec![],
            create(&name.to_uppercase(), "10.9.8.0/24"),
            Refused(&[0x803b_0010]),
            "hcsshim#850",
        )
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "a network without a prefix is not made",
            vec![],
            create(&other, ""),
            Refused(&[0x803b_000a]),
            ERRORS,
        )
        .then(networks(), response("none of it", vec![], named(&other)))
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "a network that is not there is not removed",
            vec![],
            call("DELETE", &format!("/networks/{NOBODYS}"), ""),
            Refused(&[0x803b_0001]),
            ERRORS,
        )
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "no endpoint is made in a network that is not there",
            vec![],
            call("POST", "/endpoints", &endpoint),
            Refused(&[0x803b_0001]),
            ERRORS,
        )
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "an endpoint that is not there is not attached",
            vec![],
            call("POST", &format!("/endpoints/{NOBODYS}/attach"), attach),
            Refused(&[0x803b_0002]),
            ERRORS,
        )
        .liar(says(r#"{"Success":true}"#)),
        Row::new(
            "an endpoint that is not there is not removed",
            vec![],
            call("DELETE", &format!("/endpoints/{NOBODYS}"), ""),
            Refused(&[0x803b_0002]),
            ERRORS,
        )
        .liar(says(r#"{"Success":true}"#)),
    ];
    let of_containers = |row: Row| row.needs(Needs::Containers).by_stand_in("vmcompute.dll");
    rows.into_iter().map(of_containers).collect()
}
