//! Every field of a certificate request that must fit, and what an attacker would put there.

use super::*;
use crate::kubernetes::keys;
use dormer_proto::{id::Timestamp, machine::MachineRef};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequestSpec, CertificateSigningRequestStatus},
    jiff,
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

const NODE: &str = "system:node:win-1";
const MACHINE_MADE: i64 = 1_700_000_000;

/// What a request says.
#[derive(Clone)]
struct SampleCsr {
    signer: &'static str,
    user: &'static str,
    groups: Vec<&'static str>,
    name: Vec<(DnType, &'static str)>,
    sans: Vec<SanType>,
    usages: Vec<&'static str>,
    made: i64,
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

fn ip(address: &str) -> SanType {
    SanType::IpAddress(address.parse().expect("an address"))
}

fn subject() -> Vec<(DnType, &'static str)> {
    vec![
        (DnType::OrganizationName, NODES),
        (DnType::CommonName, NODE),
    ]
}

fn first() -> SampleCsr {
    SampleCsr {
        signer: CLIENT_SIGNER,
        user: BOOTSTRAPPER.0,
        groups: vec![
            "system:serviceaccounts",
            BOOTSTRAPPER.1,
            "system:authenticated",
        ],
        name: subject(),
        sans: Vec::new(),
        usages: vec!["digital signature", "client auth"],
        made: MACHINE_MADE + 300,
    }
}

fn renewal() -> SampleCsr {
    SampleCsr {
        user: NODE,
        groups: vec![NODES, "system:authenticated"],
        ..first()
    }
}

fn serving() -> SampleCsr {
    SampleCsr {
        signer: SERVING_SIGNER,
        sans: vec![dns("win-1"), ip("10.0.0.7")],
        usages: vec!["digital signature", "server auth"],
        ..renewal()
    }
}

fn upstream() -> SampleCsr {
    let groups = vec!["system:bootstrappers", "system:authenticated"];
    SampleCsr {
        user: "system:bootstrap:abcdef",
        groups,
        ..first()
    }
}

/// What the run of a machine expects that has had a Node for long, if there is one.
fn expected(node: Option<&str>) -> CsrExpectation {
    CsrExpectation {
        node_name: "win-1".into(),
        machine_created: Timestamp(MACHINE_MADE as u64 * 1_000),
        node_uid: node.map(str::to_owned),
        machine: Some(MachineRef::default()),
        configured: true,
        served: node.is_some(),
        ..CsrExpectation::default()
    }
}

/// Its Machine, and its Node if there is one.
fn cluster_state(node: Option<&str>) -> ClusterState {
    let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
    let machine = json!({
        "metadata": {"name": "win-1", "uid": "m-1", "labels": {keys::OS_ID: "Windows"}},
        "status": {"phase": "Running", "addresses": [
            address("InternalIP", "10.0.0.7"), address("InternalIP", "2001:DB8:0::7"),
            address("ExternalIP", "203.0.113.7"), address("Hostname", "WIN-1"),
            address("InternalDNS", "win-1.example.com"), address("ExternalDNS", "win-1.example.org.")]}});
    let node = node.map(|uid| {
        let labels = json!({"kubernetes.io/os": "windows"});
        let node = json!({"metadata": {"name": "win-1", "uid": uid, "labels": labels}});
        serde_json::from_value(node).expect("a Node")
    });
    ClusterState {
        machine: Some(serde_json::from_value(machine).expect("a Machine")),
        node,
        claimed_by: None,
    }
}

fn request(ask: &SampleCsr) -> CertificateSigningRequest {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in &ask.name {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.subject_alt_names.clone_from(&ask.sans);
    let key = KeyPair::generate().expect("a key");
    let pem = params
        .serialize_request(&key)
        .expect("a request")
        .pem()
        .expect("PEM");
    let owned = |all: &[&str]| Some(all.iter().map(|one| (*one).to_owned()).collect());
    let mut csr = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: ask.signer.into(),
            username: Some(ask.user.into()),
            groups: owned(&ask.groups),
            usages: owned(&ask.usages),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    let made = jiff::Timestamp::from_second(ask.made).expect("a time");
    csr.metadata.creation_timestamp = Some(Time(made));
    csr
}

fn answer(ask: &SampleCsr, node: Option<&str>) -> Result<(), String> {
    check(
        &request(ask),
        &expected(node),
        &Asker::Shared,
        &cluster_state(node),
    )
}

#[test]
fn what_a_kubelet_asks_fits() {
    let rsa = |mut ask: SampleCsr| {
        ask.usages.insert(1, "key encipherment");
        ask
    };
    assert_eq!(answer(&first(), None), Ok(()));
    assert_eq!(answer(&upstream(), None), Ok(()));
    assert_eq!(
        answer(
            &SampleCsr {
                made: MACHINE_MADE - 5,
                ..first()
            },
            None
        ),
        Ok(())
    );
    for node in [None, Some("uid")] {
        assert_eq!(answer(&renewal(), node), Ok(()));
        assert_eq!(answer(&serving(), node), Ok(()));
        assert_eq!(answer(&rsa(renewal()), node), Ok(()));
        assert_eq!(answer(&rsa(serving()), node), Ok(()));
    }
    let fewer = SampleCsr {
        sans: vec![dns("Win-1.Example.com")],
        ..serving()
    };
    assert_eq!(
        answer(&fewer, Some("uid")),
        Ok(()),
        "any part of what the Machine has, in any case"
    );
}

#[test]
fn all_five_kinds_of_addresses_are_the_machines_however_they_are_written() {
    for own in [
        ip("10.0.0.7"),
        ip("203.0.113.7"),
        ip("2001:db8::7"),
        dns("win-1.example.com."),
        dns("WIN-1.example.org"),
        dns("win-1."),
    ] {
        let sans = vec![own.clone()];
        let ask = SampleCsr { sans, ..serving() };
        assert_eq!(answer(&ask, Some("uid")), Ok(()), "{own:?}");
    }
    for foreign in [
        ip("2001:db8::8"),
        ip("::ffff:10.0.0.7"),
        dns("win-1.example.com.."),
        dns("win-1.example"),
    ] {
        let sans = vec![dns("win-1"), foreign];
        refused(SampleCsr { sans, ..serving() }, "does not have");
    }
}

/// Refused, and the answer names the field by this word.
#[track_caller]
fn refused(ask: SampleCsr, word: &str) {
    let why = answer(&ask, None).expect_err(word);
    assert!(why.contains(word), "{why}: it should speak of {word}");
}

fn named(name: &'static str) -> Vec<(DnType, &'static str)> {
    vec![
        (DnType::OrganizationName, NODES),
        (DnType::CommonName, name),
    ]
}

#[test]
fn another_name_is_refused_however_like() {
    let like = [
        "system:node:win-10",
        "system:node:win-",
        "system:node:win",
        "system:node:WIN-1",
    ];
    let odd = [
        "win-1",
        "xsystem:node:win-1",
        "system:node:win-1 ",
        "system:node:",
        "system:node:x",
    ];
    for name in like.into_iter().chain(odd) {
        for ask in [first(), renewal(), serving()] {
            refused(
                SampleCsr {
                    name: named(name),
                    ..ask
                },
                "common name",
            );
        }
    }
    let longer = [
        "system:node:win-10",
        "system:node:win-1.example.com",
        "system:node:win",
    ];
    for user in longer {
        refused(SampleCsr { user, ..serving() }, "serving certificate");
        refused(SampleCsr { user, ..renewal() }, "may not ask");
    }
}

#[test]
fn a_subject_with_more_or_less_is_refused() {
    let with = |more: (DnType, &'static str)| {
        let mut name = subject();
        name.push(more);
        SampleCsr { name, ..first() }
    };
    refused(with((DnType::CountryName, "XX")), "more than");
    refused(
        with((DnType::OrganizationalUnitName, "system:masters")),
        "more than",
    );
    for group in [
        "system:masters",
        "system:node",
        "system:nodes2",
        "System:Nodes",
    ] {
        let name = vec![
            (DnType::OrganizationName, group),
            (DnType::CommonName, NODE),
        ];
        refused(SampleCsr { name, ..first() }, "organization");
    }
    refused(
        SampleCsr {
            name: vec![(DnType::CommonName, NODE)],
            ..first()
        },
        "organization",
    );
    // A host's words are no sentence of dormer's.
    let imitated = "the Node master-0 is there, and belongs to x";
    let name = vec![
        (DnType::OrganizationName, imitated),
        (DnType::CommonName, NODE),
    ];
    refused(
        SampleCsr { name, ..first() },
        &format!("is \"{imitated}\", not"),
    );
    refused(
        SampleCsr {
            name: vec![(DnType::OrganizationName, NODES)],
            ..first()
        },
        "common name",
    );
}

#[test]
fn names_that_the_machine_does_not_have_are_refused() {
    for foreign in [
        ip("10.0.0.8"),
        ip("10.0.0.70"),
        ip("fe80::1"),
        dns("win-10"),
        dns("win-1.evil.com"),
        dns("example.com"),
        dns("*.example.com"),
        dns("kubernetes.default.svc"),
    ] {
        let mut sans = serving().sans;
        sans.push(foreign);
        refused(SampleCsr { sans, ..serving() }, "does not have");
    }
    refused(
        SampleCsr {
            sans: Vec::new(),
            ..serving()
        },
        "names nothing",
    );
    let mail = SanType::Rfc822Name("a@win-1".try_into().expect("a name"));
    refused(
        SampleCsr {
            sans: vec![dns("win-1"), mail],
            ..serving()
        },
        "neither",
    );
    let uri = SanType::URI("spiffe://win-1".try_into().expect("a name"));
    refused(
        SampleCsr {
            sans: vec![dns("win-1"), uri],
            ..serving()
        },
        "neither",
    );
    refused(
        SampleCsr {
            sans: vec![dns("win-1")],
            ..first()
        },
        "names \"win-1\"",
    );
}

#[test]
fn other_usages_and_signers_are_refused() {
    for usages in [
        vec![],
        vec!["digital signature"],
        vec!["client auth"],
        vec!["digital signature", "server auth"],
        vec!["digital signature", "client auth", "server auth"],
        vec!["digital signature", "client auth", "cert sign"],
    ] {
        refused(SampleCsr { usages, ..first() }, "usages");
    }
    refused(
        SampleCsr {
            usages: first().usages,
            ..serving()
        },
        "usages",
    );
    for signer in [
        "kubernetes.io/kube-apiserver-client",
        "kubernetes.io/legacy-unknown",
        "",
    ] {
        refused(SampleCsr { signer, ..first() }, "signer");
    }
    refused(
        SampleCsr {
            signer: SERVING_SIGNER,
            ..first()
        },
        "usages",
    );
}

#[test]
fn only_bootstrappers_and_the_node_itself_may_ask() {
    for user in [
        "",
        "kubernetes-admin",
        "system:serviceaccount:default:node-bootstrapper",
        "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper2",
        "system:serviceaccount:openshift-machine-config-operator:node-bootstrappe",
        "system:bootstrap:abcdef",
    ] {
        refused(SampleCsr { user, ..first() }, "may not ask");
    }
    refused(
        SampleCsr {
            groups: vec!["system:authenticated"],
            ..first()
        },
        "may not ask",
    );
    refused(
        SampleCsr {
            groups: vec!["system:authenticated"],
            ..upstream()
        },
        "may not ask",
    );
    refused(
        SampleCsr {
            user: "xsystem:bootstrap:abcdef",
            ..upstream()
        },
        "may not ask",
    );
    refused(
        SampleCsr {
            groups: vec!["system:authenticated"],
            ..renewal()
        },
        NODES,
    );
    refused(
        SampleCsr {
            groups: vec!["system:authenticated"],
            ..serving()
        },
        NODES,
    );
    refused(
        SampleCsr {
            groups: vec![NODES],
            ..serving()
        },
        "system:authenticated",
    );
    refused(
        SampleCsr {
            user: BOOTSTRAPPER.0,
            ..serving()
        },
        "serving certificate",
    );
}

#[test]
fn a_token_of_the_account_counts_for_the_machine_that_it_was_made_for() {
    let by = Asker::Account {
        home: "dormer".into(),
        ids: vec!["JTI=old".into(), "JTI=new".into()],
    };
    let account = SampleCsr {
        user: "system:serviceaccount:dormer-join:dormer-bootstrapper",
        groups: vec!["system:serviceaccounts:dormer-join"],
        ..first()
    };
    let neighbour = SampleCsr {
        user: "system:serviceaccount:other-join:dormer-bootstrapper",
        ..account.clone()
    };
    let ungrouped = SampleCsr {
        groups: vec!["system:authenticated"],
        ..account.clone()
    };
    let not_made = "a token that was not made for this machine";
    for (what, ask, ids, word) in [
        ("its token", &account, vec!["JTI=new"], ""),
        ("the one before", &account, vec!["JTI=old"], ""),
        ("another machine's", &account, vec!["JTI=theirs"], not_made),
        (
            "one that begins like it",
            &account,
            vec!["JTI=ne"],
            not_made,
        ),
        ("no id", &account, vec![], not_made),
        ("two ids", &account, vec!["JTI=new", "JTI=old"], not_made),
        ("no group", &ungrouped, vec!["JTI=new"], "not in the group"),
        ("another dormer's", &neighbour, vec!["JTI=new"], "asks as"),
        ("OpenShift's account", &first(), vec!["JTI=new"], "asks as"),
        ("a bootstrap token", &upstream(), vec!["JTI=new"], "asks as"),
    ] {
        let mut csr = request(ask);
        let ids = ids.into_iter().map(str::to_owned).collect();
        csr.spec.extra = Some([(account_token::CREDENTIAL_ID.to_owned(), ids)].into());
        let answer = check(&csr, &expected(None), &by, &cluster_state(None));
        match word {
            "" => assert_eq!(answer, Ok(()), "{what}"),
            word => assert!(
                answer.as_ref().is_err_and(|why| why.contains(word)),
                "{what}: {answer:?}"
            ),
        }
    }
    let answer = check(
        &request(&account),
        &expected(None),
        &by,
        &cluster_state(None),
    );
    assert!(answer.is_err_and(|why| why.contains(not_made)));
    let answer = check(
        &request(&account),
        &expected(None),
        &Asker::Shared,
        &cluster_state(None),
    );
    assert!(answer.is_err_and(|why| why.contains("may not ask")));
}

#[test]
fn where_a_machine_has_a_token_of_its_own_nobody_else_may_ask_first() {
    let own = Asker::Own("system:bootstrap:abc123".into());
    let groups = vec!["system:bootstrappers", GROUP, "system:authenticated"];
    let by = |user: &'static str| SampleCsr {
        user,
        groups: groups.clone(),
        ..first()
    };
    let ungrouped = SampleCsr {
        user: "system:bootstrap:abc123",
        ..upstream()
    };
    let cases = [
        ("its own", by("system:bootstrap:abc123"), None, ""),
        ("its own, without dormer's group", ungrouped, None, GROUP),
        (
            "another machine's",
            by("system:bootstrap:abc124"),
            None,
            "system:bootstrap:abc124 may",
        ),
        (
            "one that begins like it",
            by("system:bootstrap:abc1234"),
            None,
            "may not ask",
        ),
        (
            "one for all",
            upstream(),
            None,
            "asks as system:bootstrap:abc123",
        ),
        ("OpenShift's account", first(), None, "may not ask"),
        ("another node", by("system:node:win-2"), None, "may not ask"),
        (
            "its own, for a Node that is there",
            by("system:bootstrap:abc123"),
            Some("uid"),
            "exists",
        ),
        ("the node itself", renewal(), Some("uid"), ""),
        ("the node itself, as a server", serving(), Some("uid"), ""),
    ];
    for (what, ask, node, word) in cases {
        let answer = check(&request(&ask), &expected(node), &own, &cluster_state(node));
        match answer {
            Ok(()) => assert_eq!(word, "", "{what} is approved"),
            Err(why) => assert!(!word.is_empty() && why.contains(word), "{what}: {why}"),
        }
    }
    let other = SampleCsr {
        name: named("system:node:win-2"),
        ..by("system:bootstrap:abc123")
    };
    let why = check(
        &request(&other),
        &expected(None),
        &own,
        &cluster_state(None),
    );
    let why = why.expect_err("another node's name");
    assert!(why.contains("common name"), "{why}");
}

#[test]
fn a_first_request_for_a_node_that_exists_or_before_its_machine_is_refused() {
    let why = answer(&first(), Some("uid")).expect_err("it exists");
    assert!(why.contains("the Node exists"), "{why}");
    refused(
        SampleCsr {
            made: MACHINE_MADE - 11,
            ..first()
        },
        "older",
    );
    let mut ageless = request(&first());
    ageless.metadata.creation_timestamp = None;
    assert!(
        check(
            &ageless,
            &expected(None),
            &Asker::Shared,
            &cluster_state(None)
        )
        .is_err()
    );
}

#[test]
fn what_cannot_be_read_is_refused() {
    let good = request(&first());
    let pem = String::from_utf8(good.spec.request.0.clone()).expect("text");
    let half = pem[..pem.len() / 2].to_owned();
    for text in [
        "",
        "no PEM",
        &half,
        &pem.replace("CERTIFICATE REQUEST", "CERTIFICATE"),
    ] {
        let mut csr = good.clone();
        csr.spec.request = ByteString(text.as_bytes().to_vec());
        assert!(
            check(&csr, &expected(None), &Asker::Shared, &cluster_state(None)).is_err(),
            "{text}"
        );
    }
    let mut csr = good;
    csr.spec.request = ByteString(vec![0xff, 0xfe]);
    assert!(check(&csr, &expected(None), &Asker::Shared, &cluster_state(None)).is_err());
}

#[test]
fn a_foreign_decision_is_kept_and_denial_wins() {
    let with = |kinds: &[(&str, &str)]| {
        let conditions = kinds
            .iter()
            .map(|(kind, status)| CertificateSigningRequestCondition {
                type_: (*kind).into(),
                status: (*status).into(),
                ..CertificateSigningRequestCondition::default()
            });
        let mut csr = request(&first());
        let conditions = Some(conditions.collect());
        let status = CertificateSigningRequestStatus {
            conditions,
            ..Default::default()
        };
        csr.status = Some(status);
        decision(&csr)
    };
    assert_eq!(with(&[]), None);
    assert_eq!(with(&[("Approved", "False")]), None);
    assert_eq!(with(&[("Approved", "True")]), Some("Approved"));
    assert_eq!(
        with(&[("Approved", "True"), ("Denied", "True")]),
        Some("Denied")
    );
    assert_eq!(
        with(&[("Approved", "True"), ("Failed", "True")]),
        Some("Failed")
    );
}
