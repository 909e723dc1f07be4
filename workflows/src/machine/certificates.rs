//! Certificate requests of a machine's kubelet: pending requests, their required content, and the result. They are
//! handled in every phase.

use super::{
    draft::Draft,
    policy,
    state::{CSRS_MAX, Csr, State},
};
use dormer_engine_core::Command;
use dormer_proto::{
    id::hash64,
    machine::{CLIENT_SIGNER, CsrExpectation, CsrFact, ForeignNode, Task},
    message::ObjectRef,
};

impl State {
    /// A certificate request of its kubelet that was not approved.
    pub(super) fn refused_csr(&self) -> Option<&Csr> {
        self.csrs.values().find(|csr| csr.refused.is_some())
    }
}

impl Draft<'_> {
    pub(super) fn on_csr(&mut self, object: &ObjectRef, csr: CsrFact) {
        let uid = &object.uid;
        if let Some(issued) = csr.issued {
            self.state.host.certificates.note(&csr.signer, issued);
        }
        if !csr.pending {
            // The watch may be faster than the worker, whose answer says whether dormer approved it.
            match self.state.csrs.get_mut(uid) {
                Some(known) if known.asked => known.fact = csr,
                _ => drop(self.state.csrs.remove(uid)),
            }
            return;
        }
        if self.state.csrs.len() >= CSRS_MAX && !self.state.csrs.contains_key(uid) {
            let mut all = self.state.csrs.iter();
            let refused = all
                .find(|(_, csr)| csr.refused.is_some())
                .map(|(uid, _)| uid.clone());
            let Some(refused) = refused else {
                // A worker handles all of them: this one comes again with the next repeat.
                return self.push(Command::ForgetFact(object.clone()));
            };
            self.state.csrs.remove(&refused);
        }
        let new = Csr {
            fact: csr.clone(),
            asked: false,
            refused: None,
            foreign: None,
            expected: 0,
        };
        self.state.csrs.entry(uid.clone()).or_insert(new).fact = csr;
        self.approve_csrs();
    }

    /// Checks all pending requests again, refused ones too: something changed that no fact here shows.
    pub(super) fn recheck_csrs(&mut self) {
        for csr in self.state.csrs.values_mut() {
            csr.refused = None;
        }
        self.approve_csrs();
    }

    /// Handles a worker's answer about the request `name`. `refused`: why it was not approved.
    pub(super) fn csr_answered(
        &mut self,
        name: &str,
        refused: Option<(String, Option<ForeignNode>)>,
    ) {
        let Some((uid, csr)) = self
            .state
            .csrs
            .iter_mut()
            .find(|(_, csr)| csr.fact.name == name)
        else {
            return;
        };
        match refused {
            // Another client has approved or denied it meanwhile.
            Some(_) if !csr.fact.pending => {
                let uid = uid.clone();
                self.state.csrs.remove(&uid);
            }
            Some((why, foreign)) => {
                self.state.note = Some(format!("{name} was not approved: {why}"));
                csr.asked = false;
                csr.refused = Some(why);
                csr.foreign = foreign;
                // The expectation may have changed since the task was issued.
                self.approve_csrs();
            }
            None => {
                let uid = uid.clone();
                self.state.host.certified |=
                    csr.fact.signer == CLIENT_SIGNER && !self.state.phase.joined();
                self.state.csrs.remove(&uid);
                self.unclaimed_node_is_ours();
            }
        }
    }

    /// Issues the approval of every pending CSR that may be approved now: none of a machine that is leaving or ignored.
    /// A paused machine gets them only if its node has joined, because that node would lose its certificate. A refused
    /// request is checked again when its expectation or its Machine changes.
    pub(super) fn approve_csrs(&mut self) {
        let deleting = self
            .state
            .machine
            .as_ref()
            .is_some_and(|machine| machine.deleting);
        let Some(expect) = self.expectation() else {
            return;
        };
        let joined = expect.node_uid.is_some();
        let paused = self.state.paused.is_some() && !joined;
        let hands_off = self.state.ignored() && self.state.lease.token().is_none();
        if deleting || self.state.phase.leaving() || paused || hands_off {
            return;
        }
        let machine = self.state.machine.as_ref();
        let identity = machine.map(|it| (&it.phase, &it.node, &it.addresses, &it.names));
        // Stored. A field with another name, or a new one, gives another hash: each refused request is then checked again.
        let expected = hash64(format!("{expect:?} {identity:?}").as_bytes());
        let mut tasks = Vec::new();
        for csr in self.state.csrs.values_mut() {
            let fresh = csr.refused.is_none() || csr.expected != expected;
            if csr.fact.pending && !csr.asked && fresh {
                csr.asked = true;
                csr.refused = None;
                csr.expected = expected;
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
        let machine = self.state.machine.as_ref()?;
        let node_name = self
            .state
            .host
            .node_name
            .clone()
            .or_else(|| self.state.node_name())?;
        let mut sans = machine.addresses.clone();
        sans.extend(machine.names.iter().cloned());
        sans.extend(machine.reached_by.iter().cloned());
        sans.push(node_name.clone());
        let host = &self.state.host;
        // A request that is there now was made by now: its own age, by another clock, needs no comparison.
        let lately = |since| self.now.at.since_ms(since) <= policy::FIRST_CERTIFICATE_MAX;
        let token = self.state.lease.token();
        Some(CsrExpectation {
            node_name,
            sans,
            machine_created: machine.created,
            node_uid: self.state.node.as_ref().map(|node| node.uid.clone()),
            provider_id: machine.provider_id.clone(),
            machine: Some(machine.machine.clone()),
            configured: !self.state.phase.joined() && host.configured.is_some_and(lately),
            torn_down: host.torn_down.filter(|torn| token == Some(*torn)),
            served: self.state.in_service,
            node_names: self
                .state
                .pool
                .as_ref()
                .and_then(|pool| pool.node_names.clone()),
        })
    }
}
