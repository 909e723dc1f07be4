//! Illegitimate certificate requests: dormer approves none of them. Kubernetes signs most of them for an approver that compares
//! nothing.

use super::{
    accounts::approver,
    ask::{
        Ask, CLIENT, Kubelet, OPERATOR, SERVING, account, bootstrap_token, csr_conditions,
        expectation, san, served,
    },
    cluster::{PATIENCE, Site, plane, run},
};
use dormer_proto::{
    id::Timestamp,
    machine::{CsrExpectation, MachineRef, Outcome, Task},
};
use dormer_testkit::{Speaker, await_condition, rcgen::SanType};
use dormer_workers::kubernetes::KubernetesExecutor;
use futures::{StreamExt, stream};
use serde_json::json;

/// The node whose certificate they are after. Its Machine has the address 10.0.0.7.
const NODE: &str = "attack-win-1";
/// Attacks at once: the API server would make clients wait for more.
const AT_ONCE: usize = 8;

/// What refuses the attack.
enum Wall {
    /// The API server does not take the request; its refusal says this.
    Server(&'static str),
    /// dormer refuses it, and says this.
    Dormer(&'static str),
}
use Wall::{Dormer, Server};

struct Attack {
    name: &'static str,
    by: Speaker,
    ask: Ask,
    expect: CsrExpectation,
    wall: Wall,
}

/// A collection of attacks, and the Machine whose node's certificate they are after.
struct AttackList(Vec<Attack>, MachineRef);

impl AttackList {
    fn page(&mut self, name: &'static str, by: &Speaker, ask: Ask, wall: Wall) {
        let by = by.clone();
        let expect = expectation(&self.1);
        self.0.push(Attack {
            name,
            by,
            ask,
            expect,
            wall,
        });
    }

    fn expecting(&mut self, change: impl FnOnce(&mut CsrExpectation)) {
        change(&mut self.0.last_mut().expect("a page").expect);
    }
}

/// A request for the node's first certificate, with one thing changed.
fn client(change: impl FnOnce(&mut Ask)) -> Ask {
    let mut ask = Ask::client(NODE);
    change(&mut ask);
    ask
}

/// A request for the node's serving certificate, with one thing changed.
fn serving(change: impl FnOnce(&mut Ask)) -> Ask {
    let mut ask = Ask::serving(NODE, &[NODE, "10.0.0.7"]);
    change(&mut ask);
    ask
}

/// A client with a good bootstrap token that asks for more than it is for.
fn names(attacks: &mut AttackList, token: &Speaker) {
    const OTHER: &str = "its common name is";
    for (name, common_name) in [
        ("cn-contains-ours", format!("system:node:{NODE}0")),
        ("cn-in-ours", "system:node:attack-win".to_owned()),
        ("cn-other", "system:node:attack-win-2".to_owned()),
        ("cn-upper", format!("system:node:{}", NODE.to_uppercase())),
        ("cn-bare", NODE.to_owned()),
        ("cn-blank-after", format!("system:node:{NODE} ")),
        ("cn-dot-after", format!("system:node:{NODE}.")),
        ("cn-nul-after", format!("system:node:{NODE}\0")),
        ("cn-line-after", format!("system:node:{NODE}\n")),
        ("cn-of-a-group", format!("system:nodes:{NODE}")),
        ("cn-admin", "system:admin".to_owned()),
        ("cn-empty", String::new()),
    ] {
        attacks.page(
            name,
            token,
            client(|ask| ask.common_name = common_name),
            Dormer(OTHER),
        );
    }
    const GROUP: &str = "its organization is";
    let masters = client(|ask| ask.organizations = vec!["system:masters"]);
    attacks.page("o-masters", token, masters, Dormer(GROUP));
    let both = client(|ask| ask.organizations = vec!["system:nodes", "system:masters"]);
    attacks.page("o-both", token, both, Dormer(GROUP));
    let twice = client(|ask| ask.organizations = vec!["system:nodes", "system:nodes"]);
    attacks.page("o-twice", token, twice, Dormer(GROUP));
    let upper = client(|ask| ask.organizations = vec!["SYSTEM:NODES"]);
    attacks.page("o-upper", token, upper, Dormer(GROUP));
    let none = client(|ask| ask.organizations = vec![]);
    attacks.page("o-none", token, none, Dormer(GROUP));
    let more = client(|ask| ask.unit = Some("system:masters"));
    attacks.page("ou", token, more, Dormer("more than a common name"));
}

fn contents(attacks: &mut AttackList, token: &Speaker) {
    for (name, added) in [
        ("client-dns", san("kubernetes.default.svc")),
        ("client-ip", san("10.0.0.7")),
        ("client-own-name", san(NODE)),
    ] {
        let ask = client(|ask| ask.sans = vec![added]);
        attacks.page(name, token, ask, Dormer("a client's request names"));
    }
    for (name, added) in [
        (
            "client-mail",
            SanType::Rfc822Name("a@b.example".try_into().expect("a name")),
        ),
        (
            "client-uri",
            SanType::URI("spiffe://b/a".try_into().expect("a name")),
        ),
    ] {
        let ask = client(|ask| ask.sans = vec![added]);
        attacks.page(
            name,
            token,
            ask,
            Dormer("neither a DNS name nor an address"),
        );
    }
    for (name, usages) in [
        ("usage-server", vec!["digital signature", "server auth"]),
        (
            "usage-both",
            vec!["digital signature", "client auth", "server auth"],
        ),
        (
            "usage-ca",
            vec!["digital signature", "client auth", "cert sign"],
        ),
        ("usage-any", vec!["any"]),
        ("usage-code", vec!["digital signature", "code signing"]),
    ] {
        let ask = client(|ask| ask.usages = usages);
        attacks.page(name, token, ask, Dormer("its usages are"));
    }
    for (name, signer) in [
        ("signer-client", "kubernetes.io/kube-apiserver-client"),
        ("signer-else", "example.com/mine"),
        (
            "signer-longer",
            "kubernetes.io/kube-apiserver-client-kubelet-2",
        ),
    ] {
        let ask = client(|ask| ask.signer = signer);
        attacks.page(name, token, ask, Dormer("its signer"));
    }
    let ask = serving(|_| {});
    attacks.page(
        "serving-by-token",
        token,
        ask,
        Dormer("asks for the serving certificate"),
    );
    let ask = client(|ask| ask.mangle = |_| "no PEM at all".into());
    attacks.page("no-pem", token, ask, Server("PEM"));
    let ask = client(|ask| ask.mangle = |pem| pem.replace("CERTIFICATE REQUEST", "CERTIFICATE"));
    attacks.page("pem-of-another-kind", token, ask, Server("PEM"));
    let ask = client(|ask| ask.mangle = |pem| pem.replacen("\nMI", "\nMJ", 1));
    attacks.page("broken-der", token, ask, Server(""));
}

/// Whose time is not now.
async fn moments(attacks: &mut AttackList, token: &Speaker, site: &Site) {
    let joined = site.joined("served").await;
    attacks.page(
        "node-exists",
        token,
        Ask::client(&joined.name),
        Dormer("the Node exists"),
    );
    let served = served(site, &joined).await;
    attacks.expecting(|expect| {
        *expect = CsrExpectation {
            configured: true,
            ..served
        };
    });
    attacks.page(
        "too-late",
        token,
        client(|_| {}),
        Dormer("not configured within the last 2 h"),
    );
    attacks.expecting(|expect| expect.configured = false);
    attacks.page(
        "replayed",
        token,
        client(|_| {}),
        Dormer("older than the Machine"),
    );
    // A Machine that is made an hour from now, and a request that was there before it.
    let later = k8s_openapi::jiff::Timestamp::now().as_millisecond() + 3_600_000;
    let later = Timestamp(u64::try_from(later).expect("after 1970"));
    attacks.expecting(|expect| expect.machine_created = later);
}

/// Identities that may not request anything.
async fn strangers(attacks: &mut AttackList, site: &Site) {
    const FIRST: &str = "may not ask for a node's first certificate";
    for (name, by) in [
        ("by-anybody", site.plane.user("mallory", None)),
        (
            "by-name-alone",
            site.plane.user("system:bootstrap:abcdef", None),
        ),
        (
            "by-group-alone",
            site.plane.user("mallory", Some("system:bootstrappers")),
        ),
        (
            "by-namesake",
            account(site, OPERATOR, "node-bootstrapper-2").await,
        ),
        (
            "by-namesake-elsewhere",
            account(site, site.name, "node-bootstrapper").await,
        ),
        ("by-bare-account", {
            site.plane.user(
                &format!("system:serviceaccount:{OPERATOR}:node-bootstrapper"),
                None,
            )
        }),
    ] {
        attacks.page(name, &by, client(|_| {}), Dormer(FIRST));
    }
    let eve = site.plane.user("eve", Some("system:bootstrappers-2"));
    attacks.page(
        "by-nobody",
        &eve,
        client(|_| {}),
        Server("cannot create resource"),
    );
    let bare = site.plane.user(&format!("system:node:{NODE}"), None);
    attacks.page(
        "renewal-without-group",
        &bare,
        client(|_| {}),
        Dormer("not in the group"),
    );
    attacks.page(
        "serving-without-group",
        &bare,
        serving(|_| {}),
        Dormer("not in the group"),
    );
    let other = site
        .plane
        .user("system:node:attack-win-2", Some("system:nodes"));
    let not_own = "can only create a node CSR with CN=system:node:attack-win-2";
    attacks.page(
        "renewal-by-another-node",
        &other,
        client(|_| {}),
        Server(not_own),
    );
    attacks.page(
        "serving-by-another-node",
        &other,
        serving(|_| {}),
        Server(not_own),
    );
    let own = Ask::serving("attack-win-2", &["attack-win-2", "10.0.0.7"]);
    attacks.page(
        "another-nodes-own",
        &other,
        own,
        Dormer("its common name is"),
    );
}

/// A node that serves, and tries to serve as another one.
fn servers(attacks: &mut AttackList, site: &Site) {
    let node = &site
        .plane
        .user(&format!("system:node:{NODE}"), Some("system:nodes"));
    const FOREIGN: &str = "the Machine does not have the address or name";
    for (name, extra) in [
        ("san-service", "kubernetes.default.svc"),
        ("san-ip", "10.96.0.1"),
        ("san-other-node", "attack-win-2"),
        ("san-contains-ours", "attack-win-10"),
        ("san-under-ours", "attack-win-1.evil.example"),
        ("san-wildcard", "*.example.com"),
        ("san-mapped", "::ffff:10.0.0.7"),
        ("san-loopback", "127.0.0.1"),
    ] {
        let ask = serving(|ask| ask.sans.push(san(extra)));
        attacks.page(name, node, ask, Dormer(FOREIGN));
    }
    let ask = serving(|ask| ask.sans.clear());
    attacks.page("san-none", node, ask, Dormer("names nothing"));
    let mail = SanType::Rfc822Name("a@b.example".try_into().expect("a name"));
    let ask = serving(|ask| ask.sans.push(mail));
    attacks.page(
        "san-mail",
        node,
        ask,
        Dormer("neither a DNS name nor an address"),
    );
    let ask = serving(|ask| ask.usages = vec!["digital signature", "client auth"]);
    attacks.page("serving-as-client", node, ask, Dormer("its usages are"));
    let ask = client(|ask| ask.usages = vec!["digital signature", "server auth"]);
    attacks.page("client-as-serving", node, ask, Dormer("its usages are"));
}

async fn fight(site: &Site, executor: &KubernetesExecutor, attack: &Attack) -> Result<(), String> {
    let Attack {
        name,
        by,
        ask,
        expect,
        wall,
    } = attack;
    let csr = format!("attack-{name}");
    let asked = Kubelet::new(site).ask(by, &csr, ask.clone()).await;
    let why = match (asked, wall) {
        (Err(error), Server(why)) if error.to_string().contains(why) => return Ok(()),
        (Err(error), _) => return Err(format!("{name}: the API server says {error}")),
        (Ok(()), Server(_)) => return Err(format!("{name}: the API server takes it")),
        (Ok(()), Dormer(why)) => why,
    };
    let task = Task::ApproveCsr {
        csr: csr.clone(),
        expect: expect.clone(),
    };
    match run(executor, task).await {
        Ok(Outcome::CsrRefused { why: said, .. }) if said.contains(why) => Ok(()),
        other => Err(format!("{name}: {other:?}")),
    }
}

/// Whether Kubernetes' signer gives a certificate for an approved request. Its checks: `ValidateKubeletClientCSR` and
/// `ValidateKubeletServingCSR` (`pkg/apis/certificates/helpers.go` of Kubernetes 1.36). `None`: no signer of that name runs.
fn is_signed_once_approved(ask: &Ask) -> Option<bool> {
    let node = ask.organizations == ["system:nodes"] && ask.common_name.starts_with("system:node:");
    let plain = |san: &SanType| matches!(san, SanType::DnsName(_) | SanType::IpAddress(_));
    match ask.signer {
        // Of these it compares the usages only.
        "kubernetes.io/kube-apiserver-client" => Some(true),
        CLIENT => {
            let usages = ask.usages == ["digital signature", "client auth"];
            Some(node && usages && ask.sans.is_empty())
        }
        SERVING => {
            let usages = ask.usages == ["digital signature", "server auth"];
            Some(node && usages && !ask.sans.is_empty() && ask.sans.iter().all(plain))
        }
        _ => None,
    }
}

/// Without dormer's comparison: a person approves the same requests. Returns how many are signed.
async fn approved_unseen(site: &Site, attacks: &[Attack]) -> usize {
    let kubelet = &Kubelet::new(site);
    let decisions = stream::iter(attacks).map(|attack| async move {
        let yes = json!({"type": "Approved", "status": "True", "reason": "Unseen"});
        let csr = format!("attack-{}", attack.name);
        kubelet.decide(&csr, yes).await;
    });
    decisions.buffer_unordered(AT_ONCE).collect::<()>().await;
    let mut count = 0;
    for Attack { name, ask, .. } in attacks {
        let Some(signs) = is_signed_once_approved(ask) else {
            continue;
        };
        let csr = format!("attack-{name}");
        let what = format!("{name} is signed ({signs}), or fails");
        await_condition(&what, PATIENCE, || async {
            let (conditions, signed) = csr_conditions(site, &csr).await;
            let failed = conditions.iter().any(|c| c["type"] == "Failed");
            let other = if signs { failed } else { signed };
            assert!(!other, "{name}: {conditions:?}");
            signed || failed
        })
        .await;
        count += usize::from(signs);
    }
    count
}

#[tokio::test]
async fn attacks_get_certificates_only_from_who_compares_nothing() {
    let site = Site::new(plane!(), "attack").await;
    let executor = approver(&site).await;
    let token = bootstrap_token(&site, "attack").await;
    let machine = site.provisioned("win-1").await;
    assert_eq!(machine.name, NODE);
    let mut attacks = AttackList(Vec::new(), machine.clone());
    names(&mut attacks, &token);
    contents(&mut attacks, &token);
    moments(&mut attacks, &token, &site).await;
    strangers(&mut attacks, &site).await;
    servers(&mut attacks, &site);
    assert!(attacks.0.len() >= 60, "{} attacks", attacks.0.len());
    let fights = stream::iter(&attacks.0).map(|attack| fight(&site, &executor, attack));
    let lost: Vec<_> = fights.buffer_unordered(AT_ONCE).collect().await;
    let lost: Vec<String> = lost.into_iter().filter_map(Result::err).collect();
    assert!(lost.is_empty(), "{lost:#?}");
    // A correct request passes in the same minute, and none of the others was signed until then.
    let kubelet = Kubelet::new(&site);
    let good = "attack-good";
    kubelet
        .ask(&token, good, Ask::client(NODE))
        .await
        .expect("it may ask");
    let task = Task::ApproveCsr {
        csr: good.into(),
        expect: expectation(&machine),
    };
    assert_eq!(
        run(&executor, task).await,
        Ok(Outcome::CsrApproved { csr: good.into() })
    );
    kubelet.identity(good).await;
    attacks.0.retain(|attack| matches!(attack.wall, Dormer(_)));
    for attack in &attacks.0 {
        let (conditions, signed) = csr_conditions(&site, &format!("attack-{}", attack.name)).await;
        let approved = conditions.iter().any(|c| c["type"] == "Approved");
        assert!(!approved && !signed, "{}: {conditions:?}", attack.name);
    }
    let signed = approved_unseen(&site, &attacks.0).await;
    assert_eq!((signed, attacks.0.len()), (31, 56));
}
