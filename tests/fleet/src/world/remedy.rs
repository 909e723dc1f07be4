//! What people do to the world outside of dormer: a few generic actions, by which every fault that does not heal by
//! itself ends.

use serde_json::{Value, json};

use super::World;
use crate::{
    api::{DeleteOptions, Key, Meta, Refusal, User, kinds},
    cluster::client::Client,
    faults::Fault,
    host::Host,
    wmco::rules::DEPLOYMENT,
};
use std::sync::Arc;

macro_rules! remedies {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, ends [$($fault:ident),*];)*) => {
        /// An action on the world. It ends what strikes again and again until it is mended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Remedy { $($(#[$doc])* $variant,)* }

        impl Remedy {
            /// Every remedy there is.
            pub const ALL: &'static [Remedy] = &[$(Remedy::$variant,)*];

            /// Its name: that of the step in `dormer why -o json`.
            pub fn name(self) -> &'static str {
                match self { $(Remedy::$variant => $name,)* }
            }

            /// Faults that strike no more after it.
            fn ends(self) -> &'static [Fault] {
                match self { $(Remedy::$variant => &[$(Fault::$fault),*],)* }
            }
        }
    };
}

remedies! {
    /// The host accepts the key of its user data.
    AcceptKey = "accept-key", ends [AuthRefused, AuthRefusedAWhile];
    /// The host gets its power back or is reset; then sshd runs, and nothing keeps packets from it.
    OpenSsh = "open-ssh", ends [Dead, SshdDeadAfterReboot, DeadForGood, HalfOpen, MaxStartups, SshResetInKex];
    /// A person reads the host's key on the host.
    CompareHostKey = "compare-host-key", ends [];
    /// A person trusts the key that was read there.
    TrustHostKey = "trust-host-key", ends [];
    /// Policies, the shell's profile and the configuration of sshd are mended.
    MendHost = "mend-host", ends [AppLocker, Wdac, ConfigureFails, ProfileNoise, SftpMissing, NoFrame, ExeLocked,
        KubeletStart1053, RunningNotHealthy, MarkedForDeletion];
    /// There is room on the disk.
    FreeDisk = "free-disk", ends [DiskFull];
    /// The clock is right.
    SetClock = "set-clock", ends [ClockSkew, ClockForward];
    /// The virus scanner leaves dormer's files alone.
    RestoreFile = "restore-file", ends [ScannerDeletes, ScannerBlocks, ProgramVanishes];
    /// The cloud has room, and the MachineSet asks for the right instances.
    MakeRoom = "make-room", ends [ReplacementNever, OtherProcessor];
    /// The pool is there again.
    CorrectPool = "correct-pool", ends [];
    /// All accounts have the rights that they had.
    MendCluster = "mend-cluster", ends [];
    /// The kubelet has the right name, reaches the API server, and starts anew; a Node without a host is deleted.
    MendNode = "mend-node", ends [NameMismatch, HostClaimsName, CsrExtraSan, Flapping,
        ServingNever, WrongBuild];
    /// Budgets, finalizers and attached volumes are released.
    LetGo = "let-go", ends [];
    /// The other operator is scaled down.
    EndOperator = "end-operator", ends [];
}

impl World {
    /// Does it, for the machine of this name.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn remedy(&self, remedy: Remedy, machine: &str) -> Result<(), Refusal> {
        for fault in remedy.ends() {
            self.faults.lift(*fault);
        }
        let hosts = self.hosts.as_ref().map(crate::host::Hosts::all);
        let mut hosts = hosts.unwrap_or_default().into_iter();
        let host: Option<Arc<Host>> = hosts.find(|host| host.name() == machine);
        let client = Client::new(&self.api, User::admin());
        match remedy {
            Remedy::CompareHostKey
            | Remedy::TrustHostKey
            | Remedy::FreeDisk
            | Remedy::RestoreFile
            | Remedy::MakeRoom => {}
            Remedy::AcceptKey => host.iter().for_each(|host| host.accept_key()),
            Remedy::OpenSsh => host.iter().for_each(|host| host.reset()),
            Remedy::MendHost => host.iter().for_each(|host| host.quiet_profile()),
            Remedy::SetClock => host.iter().for_each(|host| host.set_clock()),
            Remedy::CorrectPool => self.pool_again(&client).await?,
            Remedy::MendCluster => self.api.restore_rights(),
            Remedy::MendNode => {
                delete_nodes_of_nobody(&client).await?;
                host.iter().for_each(|host| host.mend_kubelet());
            }
            Remedy::LetGo => let_go(&client).await?,
            Remedy::EndOperator => end_operator(&client).await?,
        }
        Ok(())
    }

    /// Applies the pool of dormer's manifests, where there is none.
    async fn pool_again(&self, client: &Client) -> Result<(), Refusal> {
        if !client.all(&kinds::WINDOWS_POOL).is_empty() {
            return Ok(());
        }
        let pool = json!({"apiVersion": "dormer.io/v1beta1", "kind": "WindowsPool",
            "metadata": {"name": "windows"}, "spec": {}});
        let made = client.create(&kinds::WINDOWS_POOL, "dormer", pool).await;
        made.map(drop)
    }
}

/// Deletes Nodes whose providerID is that of no Machine.
async fn delete_nodes_of_nobody(client: &Client) -> Result<(), Refusal> {
    let machines = client.all(&kinds::MACHINE);
    let id = |object: &Value| object["spec"]["providerID"].as_str().map(str::to_lowercase);
    let known: Vec<_> = machines.iter().filter_map(|it| id(&it.value)).collect();
    for node in client.all(&kinds::NODE) {
        if id(&node.value).is_some_and(|id| !known.contains(&id)) {
            let key = Key::of(&node.value);
            client
                .delete(&kinds::NODE, &key, &DeleteOptions::now())
                .await?;
        }
    }
    Ok(())
}

/// Deletes the budgets of pods outside of the workload's own, the finalizers of pods, and attachments of volumes.
async fn let_go(client: &Client) -> Result<(), Refusal> {
    for budget in client.all(&kinds::PDB) {
        // A budget that allows nothing: it wants every pod that there is.
        if budget.value["status"]["disruptionsAllowed"]
            .as_u64()
            .unwrap_or(0)
            == 0
        {
            let key = Key::of(&budget.value);
            client
                .delete(&kinds::PDB, &key, &DeleteOptions::now())
                .await?;
        }
    }
    for pod in client.all(&kinds::POD) {
        let finalizers = pod.value["metadata"]["finalizers"].as_array();
        if finalizers.is_some_and(|all| !all.is_empty()) {
            let none = json!({"metadata": {"finalizers": null}});
            client
                .merge(&kinds::POD, &Key::of(&pod.value), &none)
                .await?;
        }
    }
    for volume in client.all(&kinds::VOLUME_ATTACHMENT) {
        let key = Key::of(&volume.value);
        client
            .delete(&kinds::VOLUME_ATTACHMENT, &key, &DeleteOptions::now())
            .await?;
    }
    Ok(())
}

async fn end_operator(client: &Client) -> Result<(), Refusal> {
    let deployments = client.all(&kinds::DEPLOYMENT);
    for deployment in deployments
        .iter()
        .filter(|it| it.value.name() == DEPLOYMENT)
    {
        let scale = json!({"spec": {"replicas": 0}});
        let key = Key::of(&deployment.value);
        client.merge(&kinds::DEPLOYMENT, &key, &scale).await?;
    }
    Ok(())
}
