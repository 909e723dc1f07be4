//! Windows nodes as an earlier run of WMCO left them: programs in `C:\k` without a folder for each version
//! (WMCO `pkg/windows/windows.go`), its daemon as a service, its annotations, and nothing of anybody else.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{KEY_ANNOTATION, VERSION, VERSION_ANNOTATION, process_key, wicd};
use crate::{
    api::{
        DeleteOptions, Key, Meta, Part, User, WriteOptions, kinds, kinds::Kind, patch::PatchKind,
    },
    host::{Host, path::WinPath, state::HostState},
    manifest::demo::{self, MACHINE_API},
    world::{World, WorldError},
};

/// What WMCO wants its next version annotation to be.
pub const DESIRED_ANNOTATION: &str = "windowsmachineconfig.openshift.io/desired-version";
/// WMCO's folder of programs.
const PROGRAMS: &str = r"C:\k";
/// Where dormer keeps its own.
const DORMERS: &str = r"C:\Windows\dormer";
/// Its service.
const BOOT: &str = "dormer-boot";

/// Gives every Windows node of the world to WMCO, as if it had configured each, and the user data of new machines.
/// Nothing is restarted, and no pod moves.
///
/// # Errors
/// The server refuses a patch.
pub async fn all(world: &World) -> Result<(), WorldError> {
    let hosts = world.hosts.as_ref().map(crate::host::Hosts::all);
    for host in hosts.unwrap_or_default() {
        lay_out(&host);
        wicd::install(&host).await;
    }
    let key = process_key(&world.ssh_key.private_pem).unwrap_or_default();
    let marks =
        json!({KEY_ANNOTATION: key, VERSION_ANNOTATION: VERSION, DESIRED_ANNOTATION: VERSION});
    for kind in [&kinds::NODE, &kinds::MACHINE] {
        for object in world.all(kind) {
            let windows = object.value.label("kubernetes.io/os") == Some("windows");
            let marks = match windows {
                true => marks.as_object().cloned().unwrap_or_default(),
                false => Map::new(),
            };
            mark(world, kind, &object.value, marks)?;
        }
    }
    user_data(world)
}

/// The Secret that WMCO would write, by the key that hosts have.
fn user_data(world: &World) -> Result<(), WorldError> {
    const NAME: &str = "windows-user-data";
    let key = Key::new(MACHINE_API, NAME);
    // It is made again.
    let there = DeleteOptions::default();
    drop(
        world
            .api
            .delete(&User::admin(), &kinds::SECRET, &key, &there),
    );
    let text = demo::user_data(&world.ssh_key.public_line);
    world.create(demo::secret(MACHINE_API, NAME, &[("userData", &text)]))?;
    Ok(())
}

/// dormer's annotations go, and these come.
fn mark(
    world: &World,
    kind: &'static Kind,
    object: &Value,
    mut marks: Map<String, Value>,
) -> Result<(), WorldError> {
    let there = object["metadata"]["annotations"].as_object();
    let ours = there.into_iter().flat_map(Map::keys);
    for key in ours.filter(|key| key.starts_with("dormer.io/")) {
        marks.insert(key.clone(), Value::Null);
    }
    if marks.is_empty() {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": marks}});
    let patched = world.api.patch(
        &User::admin(),
        kind,
        &Key::of(object),
        Part::Main,
        (PatchKind::Merge, &patch),
        &WriteOptions::default(),
    );
    let object = format!("{} {}", kind.kind, object.name());
    patched
        .map(drop)
        .map_err(|refusal| WorldError::Object { object, refusal })
}

/// Programs out of their version's folder, services with the paths that are right then, and nothing of dormer's.
fn lay_out(host: &Arc<Host>) {
    let mut state = host.state();
    let Some(version) = version_folder(&state) else {
        return;
    };
    let commands: Vec<(String, String)> = state
        .scm
        .iter()
        .map(|entry| {
            let command = entry.config.command.replace(&version, PROGRAMS);
            (entry.config.name.clone(), command)
        })
        .collect();
    for (name, command) in commands {
        if let Some(entry) = state.scm.get_mut(&name) {
            entry.config.command = command;
        }
    }
    state.disk.set_running(Default::default());
    let inside = format!("{version}\\").to_lowercase();
    let files: Vec<String> = state
        .disk
        .files()
        .filter(|path| path.to_lowercase().starts_with(&inside))
        .map(str::to_owned)
        .collect();
    for from in files {
        let to = format!("{PROGRAMS}{}", &from[version.len()..]);
        if let Some((folder, _)) = to.rsplit_once('\\') {
            state.disk.make_folders(folder);
        }
        if let (Ok(from), Ok(to)) = (WinPath::absolute(&from), WinPath::absolute(&to)) {
            let _ = state.disk.replace(&from, &to);
        }
    }
    for folder in [version.as_str(), DORMERS] {
        if let Ok(folder) = WinPath::absolute(folder) {
            let _ = state.disk.remove_tree(&folder);
        }
    }
    let _ = state.scm.delete(BOOT);
    state.refresh_running(Instant::now());
}

/// The folder of the kubelet's program, where that is a folder of a version.
fn version_folder(state: &HostState) -> Option<String> {
    let command = &state.scm.get("kubelet")?.config.command;
    let at = command.find(r"C:\k\")?;
    let rest = &command[at + PROGRAMS.len() + 1..];
    let (folder, _) = rest.split_once('\\')?;
    (!folder.contains(' ')).then(|| format!(r"{PROGRAMS}\{folder}"))
}

/// Everything of a host that a person would compare: services with their command lines and starts, and files with their
/// content; what only dormer has for itself is left out.
pub fn inventory(host: &Host) -> Vec<String> {
    let state = host.state();
    let services = state.scm.iter().map(|entry| {
        let config = &entry.config;
        let runs = state.scm.running(&config.name);
        format!(
            "service {} {:?} runs: {runs}: {}",
            config.name, config.start, config.command
        )
    });
    let dormers = format!("{DORMERS}\\").to_lowercase();
    let files = state
        .disk
        .files()
        .filter(|path| !path.to_lowercase().starts_with(&dormers))
        .map(|path| {
            let body = state.disk.read_text_path(path);
            let sum = body.map(|body| body.sha256.clone()).unwrap_or_default();
            format!("file {path} {sum}")
        });
    services.chain(files).collect()
}
