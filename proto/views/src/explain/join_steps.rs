//! Steps of a machine that does not serve yet, or whose Node is not Ready.

use super::{
    dotless,
    other_name::{OtherName, other_name},
    problem,
    shared_steps::{deleted, kubectl, node, owner},
    step::{Outside, Step},
};
use crate::{
    machine::{Machine, MachineKind},
    older_texts,
    open_enum::OpenEnum,
};

/// What a person does to see who asks in which name. A list of requests (`kubectl get csr`) has no such column.
pub(super) const SEE_REQUESTS: &str = "See the requests, with the names in them";
pub(super) const DESCRIBE_REQUESTS: [&str; 3] = ["kubectl", "describe", "csr"];

/// Steps of a Machine without an address.
pub(super) fn address(machine: &Machine) -> Vec<Step> {
    let resource = machine.resource();
    let see = |say: &str| kubectl(machine, say, &["describe", resource, &machine.name]);
    let mut conditions = machine.machine_conditions.iter();
    let refused = conditions.find(|it| problem::creation_refused(it));
    if machine.machine_error.is_some() || refused.is_some() {
        let say = format!(
            "Make room in the cloud (a quota, a subnet's addresses), or correct what {} asks for; the machine API's \
             controllers keep trying",
            owner(machine)
        );
        let mirrored = refused.filter(|it| it.kind == problem::INFRASTRUCTURE_READY);
        let object = mirrored.map(|_| {
            see("See the name of its infrastructure object, whose conditions and Events have the cloud's answer")
        });
        let room = Step::outside(Outside::MakeRoom, say);
        let steps = object.into_iter().chain([room, deleted(machine).instead()]);
        return steps.collect();
    }
    if machine
        .kind
        .as_ref()
        .is_some_and(|kind| *kind == MachineKind::WindowsHost)
    {
        return vec![
            see("See why the host is not accepted"),
            Step::outside(
                Outside::MendCluster,
                "Give its name an address that no other WindowsHost has",
            ),
        ];
    }
    vec![see(
        "See what the machine API's controllers report, such as a quota",
    )]
}

/// Steps of a machine whose host asks, or may ask, in another name. Its kubelet asks in its own only after a restart.
pub(super) fn ask_in_own_name(machine: &Machine, found: OtherName<'_>) -> Vec<Step> {
    let csr = found.csr;
    let own = node(machine);
    // With the machine's own token no other host asks.
    let another = match found.sure {
        true => String::new(),
        false => format!(" If it is {own}, another host made the request."),
    };
    let say = format!(
        "See on the host which name its kubelet has: --hostname-override in sc.exe qc kubelet; only without that flag what \
         hostname prints, in lower case. If it is not {own}, correct it there and restart the host.{another} Do not approve \
         {csr}: its certificate would make the host another Node"
    );
    vec![
        Step::command(
            "See the name in the request",
            &["kubectl", "describe", "csr", csr],
        ),
        Step::outside(Outside::MendNode, say),
    ]
}

/// Steps of a machine whose kubelet has no Node yet.
pub(super) fn no_node(machine: &Machine) -> Vec<Step> {
    if let Some(why) = &machine.certificate_refused {
        let mut steps = certificate(machine, why);
        steps.push(deleted(machine).instead());
        return steps;
    }
    if let Some(found) = other_name(machine) {
        let mut steps = ask_in_own_name(machine, found);
        steps.push(deleted(machine).instead());
        return steps;
    }
    let say = format!(
        "Compare the name after system:node: in the kubelet's request with {}: if it differs, correct --hostname-override in \
         sc.exe qc kubelet or, without that flag, the host's name; if there is no request, read the kubelet's log on the host",
        node(machine)
    );
    vec![
        Step::command(SEE_REQUESTS, &DESCRIBE_REQUESTS),
        Step::outside(Outside::MendNode, say),
        deleted(machine).instead(),
    ]
}

/// Steps after a certificate request that was not approved. Only the machine's own Node is named for deletion: a host chooses
/// the texts of its request.
pub(super) fn certificate(machine: &Machine, why: &str) -> Vec<Step> {
    let known = machine.foreign_node.as_ref().map(|it| it.node.clone());
    let foreign = known.or_else(|| older_texts::refused_for(why).map(|it| it.node));
    if let Some(foreign) = foreign.filter(|it| it == node(machine)) {
        return vec![
            Step::command(
                "See whose Node it is",
                &["kubectl", "describe", "node", &foreign],
            ),
            Step::command(
                "Delete it if no host has it any more",
                &["kubectl", "delete", "node", &foreign],
            ),
        ];
    }
    let say = format!("Remove the reason for the refusal: {}", dotless(why));
    vec![
        Step::command("See the request", &["kubectl", "describe", "csr"]),
        Step::outside(Outside::MendNode, say),
    ]
}

/// Steps of a machine that served, whose Node is not available, and whose kubelet got no certificate. Its Node has to be
/// torn down under the lease, and only then a first certificate is approved for that name again.
pub(super) fn lapsed(machine: &Machine) -> Vec<Step> {
    let name = machine.name.as_str();
    let say = match machine.kind.as_ref().and_then(OpenEnum::known) {
        Some(MachineKind::WindowsHost) => {
            "Set the host up again if its kubelet's certificate has lapsed"
        }
        _ => "Replace the machine if its kubelet's certificate has lapsed",
    };
    vec![
        Step::command("See who asks for what", &["kubectl", "describe", "csr"]),
        Step::command(say, &["dormer", "recreate", name]),
    ]
}

/// Steps of a machine whose kubelet does not renew a certificate of its own; none if it does.
pub(super) fn not_renewed(machine: &Machine) -> Vec<Step> {
    if problem::late(machine).is_none() {
        return Vec::new();
    }
    let mut steps = vec![Step::outside(
        Outside::MendNode,
        "Mend what keeps the kubelet from asking, or its request from being approved or signed: the kubelet's log on the \
         host, and the requests, say it",
    )];
    steps.extend(lapsed(machine));
    steps
}

/// Steps of a machine whose Node is not Ready.
pub(super) fn not_ready(machine: &Machine) -> Vec<Step> {
    vec![
        Step::command(
            "See what the Node lacks",
            &["kubectl", "describe", "node", node(machine)],
        ),
        Step::outside(Outside::MendNode, "Mend what its conditions name"),
    ]
}
