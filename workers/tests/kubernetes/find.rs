//! Search for a Node by its names and by its provider id. A failed read does not prove an absence.

use super::bench::{Bench, Gate, executor, run};
use dormer_fleet::api::{DeleteOptions, Key, User, kinds};
use dormer_proto::machine::{MachineRef, Outcome, Task};
use dormer_workers::kubernetes::Settings;
use serde_json::json;

fn find(machine: &MachineRef, names: &[&str], provider_id: Option<&str>) -> Task {
    Task::FindNode {
        machine: machine.clone(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        provider_id: provider_id.map(str::to_owned),
    }
}

fn found(name: &str) -> Outcome {
    Outcome::NodeFound { name: name.into() }
}

#[tokio::test]
async fn a_node_is_found_by_any_of_its_names_and_by_its_provider_id() {
    let bench = Bench::new(2, false).await;
    let machines = bench.machines();
    let m = &machines[0];
    let other = &machines[1];
    let id = bench.machine(m)["spec"]["providerID"].clone();
    let id = id.as_str();
    assert!(id.is_some(), "the cloud gives one");
    let name = m.name.as_str();
    assert_eq!(bench.run(find(m, &[name], id)).await, Ok(found(name)));
    assert_eq!(
        bench.run(find(m, &["gone", name], id)).await,
        Ok(found(name)),
        "a name of an earlier time"
    );
    assert_eq!(
        bench.run(find(m, &[], id)).await,
        Ok(found(name)),
        "the Machine itself names it, or the provider id does"
    );
    // The Node of that name is another computer's.
    assert_eq!(
        bench.run(find(m, &[&other.name], id)).await,
        Ok(found(name))
    );
}

#[tokio::test]
async fn a_node_that_was_deleted_is_absent_and_one_that_cannot_be_read_is_not() {
    let bench = Bench::new(2, false).await;
    let m = &bench.machines()[0];
    let id = bench.machine(m)["spec"]["providerID"].clone();
    bench
        .world
        .api
        .delete(
            &User::admin(),
            &kinds::NODE,
            &Key::new("", m.name.as_str()),
            &DeleteOptions::now(),
        )
        .expect("it is deleted");
    assert_eq!(
        bench.run(find(m, &[&m.name], id.as_str())).await,
        Ok(Outcome::NodeAbsent)
    );
    let mut kubeconfig = bench.world.kubeconfig();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    let cut_off = executor(&kubeconfig, &Gate::default(), Settings::default()).await;
    let failure = run(&cut_off, find(m, &[&m.name], id.as_str())).await;
    let failure = failure.expect_err("nothing could be read");
    assert!(failure.retry, "{failure:?}");
}
