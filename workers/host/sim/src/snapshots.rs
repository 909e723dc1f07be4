//! Copies of a host before and after each changing operation: one run shows every point at which it could have been
//! cut.

use dormer_host::ops::{Host, Operation, OperationRequest, Outcome};

use crate::{SimulatedHost, When};

/// A host on which the process was killed.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The host. Windows has closed the process's handles.
    pub host: SimulatedHost,
    /// On which side of the operation.
    pub when: When,
    /// The operation's name.
    pub operation: &'static str,
}

/// A host that keeps a copy of itself at each cut. The cost is linear: nothing is run again up to the cut.
#[derive(Debug)]
pub struct Snapshots<'a> {
    host: &'a mut SimulatedHost,
    /// Since the last copy time has passed.
    moved: bool,
    taken: Vec<Snapshot>,
}

impl<'a> Snapshots<'a> {
    /// `host`, copied before and after each operation that changes something.
    pub const fn new(host: &'a mut SimulatedHost) -> Self {
        Self {
            host,
            moved: true,
            taken: Vec::new(),
        }
    }

    /// The copies in order.
    pub fn taken(self) -> Vec<Snapshot> {
        self.taken
    }

    fn take(&mut self, when: When, operation: &'static str) {
        let mut host = self.host.clone();
        host.process_ended();
        self.taken.push(Snapshot {
            host,
            when,
            operation,
        });
    }
}

impl Host for Snapshots<'_> {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        let name = request.operation.name();
        if !request.operation.changes() {
            // A read does not change the host; services may start during a pause.
            self.moved |= matches!(request.operation, Operation::Pause(_));
            return self.host.perform(request).await;
        }
        if self.moved {
            self.take(When::Before, name);
        }
        let outcome = self.host.perform(request).await;
        self.take(When::After, name);
        self.moved = false;
        outcome
    }
}
