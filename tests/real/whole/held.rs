//! Drain that several things hold: dormer names them, and people remove one after the other.

use super::{
    super::{
        cluster::{BUDGET, NODE, POD, WINDOWS_MACHINE},
        olm,
    },
    crew::{Crew, install},
    ground::{Ground, ROLES},
};
use dormer_testkit::{skip, started};
use serde_json::{Value, json};

const FINALIZER: &str = "example.com/hold";
const BUDGETS: [&str; 2] = ["one", "other"];

/// Three pods without an owner: one of two budgets, one with a finalizer, one with data of its own.
async fn furnish(ground: &Ground, node: &str, number: usize) {
    for (name, finalizers) in [
        ("a-twice", json!(null)),
        ("b-held", json!([FINALIZER])),
        ("c-bare", json!(null)),
    ] {
        let metadata = json!({"name": format!("{name}-{number}"), "namespace": ground.pods,
            "labels": {"app": name}, "finalizers": finalizers});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "tolerations": [{"operator": "Exists"}]}});
        ground.world.create(pod).await;
    }
}

async fn budgets(ground: &Ground) {
    for name in BUDGETS {
        let selector = json!({"matchLabels": {"app": "a-twice"}});
        let budget = json!({"apiVersion": "policy/v1", "kind": BUDGET.2,
            "metadata": {"name": name, "namespace": ground.pods},
            "spec": {"minAvailable": 0, "selector": selector}});
        ground.world.create(budget).await;
    }
}

/// The finalizer goes, and with it a pod that is going.
async fn release(ground: &Ground, number: usize) {
    let free = json!({"metadata": {"finalizers": null}});
    ground
        .world
        .patch(POD, &ground.pods, &format!("b-held-{number}"), free)
        .await;
}

/// The machine that drains, as dormer tells it.
fn draining(crew: &Crew<'_>) -> Option<Value> {
    crew.machines()
        .into_iter()
        .find(|machine| machine["state"] == "Draining")
}

async fn runs(ground: &Ground, name: &str, number: usize) -> bool {
    let pod = ground
        .world
        .get(POD, &ground.pods, &format!("{name}-{number}"))
        .await;
    pod.is_some_and(|pod| pod["metadata"]["deletionTimestamp"].is_null())
}

/// Whether dormer says of the machine that drains that it waits for this, and `kubectl` shows it, too.
async fn waits(ground: &Ground, crew: &Crew<'_>, says: &str) -> bool {
    let Some(machine) = draining(crew) else {
        return false;
    };
    let name = machine["name"].as_str().expect("a name");
    let shown = ground
        .world
        .get(WINDOWS_MACHINE, &ground.machines, name)
        .await;
    let is = |what: &Value| what.as_str().is_some_and(|what| what == says);
    is(&machine["waitingFor"]) && shown.is_some_and(|it| is(&it["status"]["waitingFor"]))
}

/// Waits until dormer's OperatorCondition says whether a machine holds the lease, where the Operator Lifecycle Manager would
/// run it. Once none does, the kubelets' version decides.
async fn until_lease_is_shown(ground: &Ground, crew: &Crew<'_>, held: bool) {
    let Some(name) = ground.operator_condition else {
        return;
    };
    crew.until(&format!("the condition says held: {held}"), async || {
        let found = ground.world.get(olm::CONDITION, &ground.home, name).await;
        let condition = found.expect("it is there")["spec"]["conditions"][0].clone();
        let reason = condition["reason"].as_str();
        let of_lease = condition["status"] == "False" && reason == Some("LeaseHeld");
        condition["type"] == "Upgradeable" && of_lease == held
    })
    .await;
}

async fn named_and_mended(ground: &Ground) {
    ground.set(json!({"strategy": {"type": "InPlace"}})).await;
    install(ground, "11.0.0");
    let crew = started!(Crew::start(ground));
    crew.until_all_serve(2, "11.0.0-").await;
    let nodes = ground.served("11.0.0-").await;
    let nodes: Vec<&str> = nodes
        .iter()
        .map(|node| node["metadata"]["name"].as_str().expect("a name"))
        .collect();
    budgets(ground).await;
    for (number, node) in nodes.iter().enumerate() {
        furnish(ground, node, number).await;
    }
    crew.until("the pods run", async || {
        let pods = ground.world.list(POD, &ground.pods).await;
        let ours = |pod: &&Value| pod["metadata"]["labels"]["app"] == "b-held";
        pods.iter()
            .filter(ours)
            .filter(|pod| pod["status"]["phase"] == "Running")
            .count()
            == 2
    })
    .await;
    ground.record.reset_max_unavailable();
    install(ground, "11.1.0");

    crew.until("one drains", async || draining(&crew).is_some())
        .await;
    let cordoned = async |node: &str| {
        let node = ground.world.get(NODE, "", node).await.expect("the node");
        node["spec"]["unschedulable"] == true
    };
    crew.until("its node is cordoned", async || {
        cordoned(nodes[0]).await || cordoned(nodes[1]).await
    })
    .await;
    let at = usize::from(cordoned(nodes[1]).await);
    let namespace = &ground.pods;
    let node = nodes[at];
    let budgets = format!(
        "2 pods to leave: {namespace}/a-twice-{at} (the disruption budgets one, other match it, and no pod with more \
         than one can be evicted: delete all of them but one) and 1 more pod"
    );
    crew.until(&budgets, async || waits(ground, &crew, &budgets).await)
        .await;
    assert!(
        !runs(ground, "c-bare", at).await,
        "what nobody would replace goes, and its data"
    );
    let reason = draining(&crew).expect("it drains")["reason"].to_string();
    assert!(
        reason.contains("b-held") && reason.contains(FINALIZER),
        "{reason}"
    );

    // People touch the cordon in the middle: dormer takes it back, and one that is there already is no matter.
    for person in [false, true] {
        let change = json!({"spec": {"unschedulable": person}});
        ground.world.patch(NODE, "", node, change).await;
        crew.until("it is cordoned", async || cordoned(node).await)
            .await;
    }
    crew.until("it still drains", async || {
        waits(ground, &crew, &budgets).await
    })
    .await;
    until_lease_is_shown(ground, &crew, true).await;
    assert!(
        runs(ground, "a-twice", at).await,
        "and moves nothing that its budgets hold"
    );

    ground.world.delete(BUDGET, namespace, BUDGETS[0]).await;
    // Of several budgets on a pod the disruption controller counts one, and the other when it is touched.
    let touch = json!({"metadata": {"annotations": {"example.com/counted": "anew"}}});
    ground
        .world
        .patch(BUDGET, namespace, BUDGETS[1], touch)
        .await;
    let held = format!(
        "1 pod to leave: {namespace}/b-held-{at} (it waits for its finalizers {FINALIZER})"
    );
    crew.until(&held, async || waits(ground, &crew, &held).await)
        .await;
    for number in [0, 1] {
        release(ground, number).await;
    }
    crew.until_all_serve(2, "11.1.0-").await;
    assert_eq!(
        ground.record.max_unavailable_observed(),
        1,
        "one node at a time"
    );
    until_lease_is_shown(ground, &crew, false).await;
    crew.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_names_what_holds_it_and_goes_on_as_people_mend_it_on_a_real_api_server() {
    let mut ground = match Ground::real("held", 2, &[]).await {
        Ok(ground) => ground,
        Err(skipped) => skip!(skipped),
    };
    let accounts = ROLES.map(|role| format!("dormer-{role}"));
    match olm::would_run(&ground.world, &ground.home, &accounts).await {
        Ok(name) => ground.operator_condition = Some(name),
        Err(skipped) => skip!(skipped),
    }
    named_and_mended(&ground).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_names_what_holds_it_and_goes_on_as_people_mend_it_on_the_simulated_one() {
    named_and_mended(&Ground::simulated(2, &[]).await).await;
}
