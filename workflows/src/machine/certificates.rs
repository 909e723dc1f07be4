//! Certificate requests of a machine's kubelet: which are pending, what each must say, and what became of it. They go
//! on beside any phase.

use super::{
    draft::Draft,
    state::{CSRS_MAX, Csr},
};
use dormer_proto::machine::{CsrExpectation, CsrFact, MachineFact, Task};

impl Draft<'_> {
    pub(super) fn on_csr(&mut self, uid: &str, csr: CsrFact) {
        if !csr.pending {
            self.s.csrs.remove(uid);
            return;
        }
        if self.s.csrs.len() >= CSRS_MAX && !self.s.csrs.contains_key(uid) {
            return;
        }
        let new = Csr {
            fact: csr.clone(),
            asked: false,
            refused: None,
        };
        self.s.csrs.entry(uid.to_owned()).or_insert(new).fact = csr;
        self.approve_csrs();
    }

    /// A certificate that was refused for a name or address too many may fit the Machine as it is now.
    pub(super) fn certificates_may_fit_now(&mut self, before: Option<&MachineFact>) {
        let same = |m: &MachineFact| {
            self.s
                .machine
                .as_ref()
                .is_some_and(|now| now.addresses == m.addresses && now.names == m.names)
        };
        if !before.is_some_and(same) {
            for csr in self.s.csrs.values_mut() {
                csr.refused = None;
            }
        }
        self.approve_csrs();
    }

    /// A worker looked at the request `name`. `refused`: why it was not approved.
    pub(super) fn csr_answered(&mut self, name: &str, refused: Option<String>) {
        let Some((uid, csr)) = self
            .s
            .csrs
            .iter_mut()
            .find(|(_, csr)| csr.fact.name == name)
        else {
            return;
        };
        match refused {
            Some(why) => {
                self.s.note = Some(format!("{name} was not approved: {why}"));
                csr.asked = false;
                csr.refused = Some(why);
            }
            None => {
                let uid = uid.clone();
                self.s.csrs.remove(&uid);
            }
        }
    }

    /// Has every pending CSR looked at that is ours to approve now: none of a machine that is leaving, or to be left
    /// alone. Of a paused one those of a node that has joined: it serves on, and would lose its certificate.
    pub(super) fn approve_csrs(&mut self) {
        let deleting = self
            .s
            .machine
            .as_ref()
            .is_some_and(|machine| machine.deleting);
        let Some(expect) = self.expectation() else {
            return;
        };
        let joined = expect.node_uid.is_some();
        let paused = self.s.paused.is_some() && !joined;
        let hands_off = self.s.ignored() && self.s.lease.token().is_none();
        if deleting || self.s.phase.leaving() || paused || hands_off {
            return;
        }
        let mut tasks = Vec::new();
        for csr in self.s.csrs.values_mut() {
            if csr.fact.pending && !csr.asked && csr.refused.is_none() {
                csr.asked = true;
                tasks.push(Task::ApproveCsr {
                    csr: csr.fact.name.clone(),
                    expect: expect.clone(),
                });
            }
        }
        for task in tasks {
            self.run(task);
        }
    }

    fn expectation(&self) -> Option<CsrExpectation> {
        let machine = self.s.machine.as_ref()?;
        let node_name = self
            .s
            .host
            .node_name
            .clone()
            .or_else(|| self.s.node_name())?;
        let mut sans = machine.addresses.clone();
        sans.extend(machine.names.iter().cloned());
        sans.push(node_name.clone());
        // A host that is configured anew asks for its first certificate again, though its old Node still stands.
        let configured_anew = self.s.lease.token().is_some() && !self.s.phase.joined();
        let first = self.s.first_bring_up() || configured_anew;
        Some(CsrExpectation {
            node_name,
            sans,
            machine_created: machine.created,
            node_uid: self
                .s
                .node
                .as_ref()
                .filter(|_| !first)
                .map(|node| node.uid.clone()),
            provider_id: machine.provider_id.clone(),
        })
    }
}
