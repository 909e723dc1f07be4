//! Address without a server: an error there does not count as success.

use super::bench::{Bench, Gate, executor, run};
use dormer_proto::{
    id::LeaseToken,
    machine::{CsrExpectation, Guard, MachineRef, Task},
};
use dormer_workers::{host::cluster::Cluster, kubernetes::Settings};

fn tasks(machine: &MachineRef) -> Vec<Task> {
    let node = machine.name.clone();
    let machine = machine.clone();
    let token = LeaseToken(3);
    let at = Some(node.clone());
    vec![
        Task::OpenFence {
            machine: machine.clone(),
            node: at.clone(),
            token,
            over_limit: false,
            cordon: true,
            guard: Guard::default(),
        },
        Task::CloseFence {
            machine: machine.clone(),
            node: at,
            token,
        },
        Task::Evict {
            machine: machine.clone(),
            node,
            token,
            force: false,
            guard: Guard::default(),
        },
        Task::FindNode {
            machine: machine.clone(),
            names: vec![machine.name.clone()],
            provider_id: None,
        },
        Task::DeleteMachine {
            machine,
            token,
            guard: Guard::default(),
        },
        Task::ApproveCsr {
            csr: "csr-1".into(),
            expect: CsrExpectation::default(),
        },
    ]
}

#[tokio::test]
async fn a_404_that_names_no_object_is_no_answer() {
    let bench = Bench::new(1, false).await;
    let machine = &bench.machines()[0];
    let mut kubeconfig = bench.world.kubeconfig();
    kubeconfig["clusters"][0]["cluster"]["server"] =
        format!("{}/nowhere", bench.world.api_url).into();
    let lost = executor(&kubeconfig, &Gate::default(), Settings::default()).await;
    for task in tasks(machine) {
        let name = task.name();
        let failure = run(&lost, task).await.expect_err(name);
        assert!(
            failure.retry && failure.code == "NotFound",
            "{name}: {failure:?}"
        );
    }
    let failure = lost
        .note(machine, "win-1", "k")
        .await
        .expect_err("nothing was noted");
    assert!(failure.retry && failure.code == "NotFound", "{failure:?}");
}
