//! Win32: one file for each sort of operation. What Wine 8 or an old Windows lacks is bound late ([`late_binding`]).

mod com;
mod defender;
mod error;
mod files;
mod firewall;
mod images;
mod late_binding;
mod network;
mod ports;
mod processes;
mod program;
mod registry;
mod roots;
mod services;
mod system;
mod text;
mod wmi;

pub use program::{as_service, serve, watched};

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs::File,
    os::windows::io::OwnedHandle,
};

use dormer_host::ops::{Answer, Host, Operation, OperationRequest, Outcome, ProcessKey};

/// This Windows. Keeps the locks and processes that operations opened.
#[derive(Debug, Default)]
pub struct Win32 {
    /// Open lock files, by lower-case path.
    locks: BTreeMap<String, File>,
    /// Open processes.
    processes: BTreeMap<ProcessKey, OwnedHandle>,
}

impl Win32 {
    /// This Windows, nothing held.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Host for Win32 {
    async fn perform(&mut self, request: OperationRequest) -> Outcome {
        self.answer(request.operation)
    }
}

impl Win32 {
    fn answer(&mut self, operation: Operation) -> Outcome {
        use Answer as A;
        use Operation as O;
        match operation {
            O::FileInformation(ask) => files::describe(&ask.path).map(A::FileInformation),
            O::FileSecurity(ask) => files::security(&ask.path).map(A::FileSecurity),
            O::FileRights(ask) => files::set_rights(&ask).map(A::FileRights),
            O::FileDigest(ask) => files::digest(&ask.path).map(A::FileDigest),
            O::FileRead(ask) => files::read(&ask).map(A::FileRead),
            O::FileWriteNew(ask) => files::write_new(&ask).map(A::FileWriteNew),
            O::FileRename(ask) => files::rename(&ask).map(A::FileRename),
            O::FileDelete(ask) => files::delete(&ask.path).map(A::FileDelete),
            O::FileProbe(ask) => files::probe(&ask.path).map(A::FileProbe),
            O::FileAttributes(ask) => files::attributes(&ask).map(A::FileAttributes),
            O::FileVersion(ask) => files::version(&ask.path).map(A::FileVersion),
            O::DirectoryCreate(ask) => files::directory_create(&ask).map(A::DirectoryCreate),
            O::DirectoryList(ask) => files::directory_list(&ask.path).map(A::DirectoryList),
            O::DirectoryRemove(ask) => files::directory_remove(&ask.path).map(A::DirectoryRemove),
            O::TreeRemove(ask) => files::tree_remove(&ask.path).map(A::TreeRemove),
            O::VolumeSpace(ask) => files::space(&ask.path).map(A::VolumeSpace),
            O::LockTake(ask) => self.take(&ask.path).map(A::LockTake),
            O::LockRelease(ask) => {
                self.locks.remove(&ask.path.to_ascii_lowercase());
                Ok(A::LockRelease(()))
            }
            O::ServiceList(_) => services::list().map(A::ServiceList),
            O::ServiceRead(ask) => services::read(&ask.name).map(A::ServiceRead),
            O::ServiceStatusRead(ask) => services::status(&ask.name).map(A::ServiceStatusRead),
            O::ServiceCreate(ask) => services::create(&ask).map(A::ServiceCreate),
            O::ServiceChange(ask) => services::change(&ask).map(A::ServiceChange),
            O::ServiceDescribe(ask) => services::describe(&ask).map(A::ServiceDescribe),
            O::ServiceFailure(ask) => services::failure(&ask).map(A::ServiceFailure),
            O::ServiceStart(ask) => services::start(&ask.name).map(A::ServiceStart),
            O::ServiceStop(ask) => services::stop(&ask.name).map(A::ServiceStop),
            O::ServiceDelete(ask) => services::delete(&ask.name).map(A::ServiceDelete),
            O::ProcessList(_) => processes::list().map(A::ProcessList),
            O::ProcessHold(ask) => self.hold(ask.pid).map(A::ProcessHold),
            O::ProcessEnded(ask) => processes::ended(self.held(ask.process)?).map(A::ProcessEnded),
            O::ProcessEnd(ask) => processes::end(self.held(ask.process)?).map(A::ProcessEnd),
            O::ProcessRelease(ask) => {
                self.processes.remove(&ask.process);
                Ok(A::ProcessRelease(()))
            }
            O::RegistryRead(ask) => registry::read(&ask).map(A::RegistryRead),
            O::RegistryList(ask) => registry::list(&ask.key).map(A::RegistryList),
            O::RegistryWrite(ask) => registry::write(&ask).map(A::RegistryWrite),
            O::RegistryDelete(ask) => registry::delete(&ask).map(A::RegistryDelete),
            O::DynamicPortsRead(_) => ports::read().map(A::DynamicPortsRead),
            O::EnvironmentTell(_) => system::environment_tell().map(A::EnvironmentTell),
            O::SystemRead(_) => system::read().map(A::SystemRead),
            O::ClockRead(_) => Ok(A::ClockRead(system::clock())),
            O::BootRead(_) => system::boot().map(A::BootRead),
            O::DomainRead(_) => system::domain().map(A::DomainRead),
            O::HostNameSet(ask) => system::host_name_set(&ask.name).map(A::HostNameSet),
            O::RebootAsk(ask) => system::reboot(&ask).map(A::RebootAsk),
            O::FeatureRead(ask) => late_binding::feature_read(&ask.name).map(A::FeatureRead),
            O::FeatureEnable(ask) => late_binding::feature_enable(&ask.name).map(A::FeatureEnable),
            O::ProgramRun(ask) => processes::run(&ask).map(A::ProgramRun),
            O::Pause(ask) => {
                std::thread::sleep(std::time::Duration::from_millis(ask.ms));
                Ok(A::Pause(()))
            }
            O::RootList(_) => roots::list().map(A::RootList),
            O::RootAdd(ask) => roots::add(&ask).map(A::RootAdd),
            O::RootRemove(ask) => roots::remove(&ask.sha256).map(A::RootRemove),
            O::HnsCall(ask) => late_binding::hns(&ask).map(A::HnsCall),
            O::InterfaceList(_) => network::interfaces().map(A::InterfaceList),
            O::RouteList(_) => network::routes().map(A::RouteList),
            O::RouteAdd(ask) => network::route_add(&ask.route).map(A::RouteAdd),
            O::RouteRemove(ask) => network::route_remove(&ask.route).map(A::RouteRemove),
            O::HttpGet(ask) => network::get(&ask).map(A::HttpGet),
            O::FirewallRead(ask) => firewall::read(&ask.name).map(A::FirewallRead),
            O::FirewallAdd(ask) => firewall::add(&ask.rule).map(A::FirewallAdd),
            O::FirewallChange(ask) => firewall::change(&ask.rule).map(A::FirewallChange),
            O::FirewallRemove(ask) => firewall::remove(&ask.name).map(A::FirewallRemove),
            O::FirewallPolicyRead(_) => firewall::policy_read().map(A::FirewallPolicyRead),
            O::DefenderRead(_) => defender::read().map(A::DefenderRead),
            O::DefenderAdd(ask) => defender::call("Add", &ask.exclusions).map(A::DefenderAdd),
            O::DefenderRemove(ask) => {
                defender::call("Remove", &ask.exclusions).map(A::DefenderRemove)
            }
            O::ImageRead(ask) => images::read(&ask).map(A::ImageRead),
            O::ImageArchiveRead(ask) => images::describe(&ask).map(A::ImageArchiveRead),
            O::ImageImport(ask) => images::import(&ask).map(A::ImageImport),
        }
    }

    fn take(&mut self, path: &str) -> Result<(), dormer_host::ops::WinError> {
        if let Entry::Vacant(free) = self.locks.entry(path.to_ascii_lowercase()) {
            free.insert(files::lock(path)?);
        }
        Ok(())
    }

    fn hold(&mut self, pid: u32) -> Result<u64, dormer_host::ops::WinError> {
        let (created, handle) = processes::open(pid)?;
        // Held already: the first handle stays.
        self.processes
            .entry(ProcessKey { pid, created })
            .or_insert(handle);
        Ok(created)
    }

    fn held(&self, process: ProcessKey) -> Result<&OwnedHandle, dormer_host::ops::WinError> {
        self.processes
            .get(&process)
            .ok_or_else(|| error::code(windows_sys::Win32::Foundation::ERROR_INVALID_HANDLE))
    }
}
