//! Mistakes in what containerd reads: rows 1 to 5, and row 19 for the registries.

use super::{
    super::node::{NODE, Node, SERVER_2025},
    refused, with_containerd, with_layer,
};

const NRI_OFF: &str = "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n";
const RUNTIME: &str = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.a]\n  runtime_path = 'C:\\a.exe'\n";
const BOTH_FOLDERS: &str = "bin_dir = 'C:\\a'\nbin_dirs = ['C:\\a']";

/// A layer whose file of containerd is this text.
fn file(text: &str) -> String {
    let text = text.replace('\n', "\n        ");
    format!(
        "host:\n  files:\n    C:\\k\\containerd\\containerd_conf.toml:\n      content: |\n        {text}\n"
    )
}

/// The same, with these lines below `cni` of containerd 2.
fn cni(lines: &str) -> String {
    file(&format!(
        "version = 3\n{NRI_OFF}{RUNTIME}[plugins.'io.containerd.cri.v1.runtime'.cni]\n{lines}"
    ))
}

/// The same, with this line below `pinned_images` of containerd 2.
fn pinned_images(line: &str) -> String {
    file(&format!(
        "version = 3\n{NRI_OFF}{RUNTIME}[plugins.'io.containerd.cri.v1.images'.pinned_images]\n{line}"
    ))
}

/// The same, of a profile that blocks a registry.
fn file_and_blocked_registry(text: &str) -> String {
    format!("{}  mirrors: {{quay.io: {{blocked: true}}}}\n", file(text))
}

#[test]
fn the_wrong_cni_folders_are_refused() {
    let [both, single, list, misspelt] = [
        BOTH_FOLDERS,
        "bin_dir = 'C:\\a'",
        "bin_dirs = ['C:\\a']",
        "bin_dirz = ['C:\\a']",
    ]
    .map(cni);
    let list_of_1 =
        file("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nbin_dirs = ['C:\\a']");
    let both_there = "are both there, which containerd refuses";
    refused(&[
        (1, with_containerd("2.1", &both), both_there),
        (1, with_containerd("2.2", &both), both_there),
        (1, with_containerd("2.3", &both), both_there),
        (1, with_containerd("2.4", &both), both_there),
        (1, with_containerd("2.1", &single), "a setting of 2.0 only"),
        (1, with_containerd("2.4", &single), "a setting of 2.0 only"),
        (
            1,
            with_containerd("2.0", &list),
            "a setting of 2.1 and later",
        ),
        (
            1,
            with_layer(&list_of_1),
            "`plugins/io.containerd.grpc.v1.cri/cni/bin_dirs` is a setting of 2.1 and later",
        ),
        (
            1,
            with_containerd("2.3", &misspelt),
            "`cni.bin_dirz` is no setting of containerd; did you mean bin_dir",
        ),
    ]);
}

#[test]
fn a_file_of_another_version_is_refused() {
    let cri = "[plugins.'io.containerd.grpc.v1.cri'.registry]\nconfig_path = 'C:\\k\\containerd\\registries'";
    let [versionless, first] =
        ["", "version = 1"].map(|version| file_and_blocked_registry(&format!("{version}\n{cri}")));
    let [three, four, broken] = ["version = 3", "version = 4", "version = "].map(file);
    let elsewhere = "host: {services: {containerd: {command: ['C:\\k\\Containerd.exe', --config, 'C:\\my.toml']}}}";
    let nowhere = "host: {services: {containerd: {command: ['C:\\k\\containerd.exe']}}}";
    refused(&[
        (2, with_layer(&versionless), "has no `version`"),
        (
            2,
            with_layer(&first),
            "`version = 1` is of containerd before 1.3",
        ),
        (
            2,
            with_layer(&three),
            "`version = 3` is a setting of 2.0 and later",
        ),
        (
            2,
            with_containerd("2.2", &four),
            "`version = 4` is a setting of 2.3 and later",
        ),
        (2, with_containerd("2.4", &broken), "is no TOML"),
        (
            2,
            with_layer(elsewhere),
            r"service:containerd: containerd reads C:\my.toml, which is not among this section's `files`",
        ),
        (
            2,
            with_layer(nowhere),
            r"containerd reads C:\Program Files\containerd\config.toml, which is not among",
        ),
    ]);
}

#[test]
fn nri_that_is_on_and_runtimes_without_a_shim_are_refused() {
    let nri_on = file(&format!("version = 3\n{RUNTIME}"));
    let unnamed = file(&format!("version = 3\n{NRI_OFF}{RUNTIME}"));
    let no_path = file(&format!(
        "version = 3\n{NRI_OFF}[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.a]\nruntime_type = 'x'"
    ));
    let no_path_of_1 = file(
        "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.a]\nruntime_type = 'x'",
    );
    refused(&[
        (3, with_containerd("2.3", &nri_on), "NRI is on without it"),
        (
            4,
            with_containerd("2.3", &unnamed),
            "the runtime runhcs-wcow-process, the default one, is not named",
        ),
        (4, with_containerd("2.3", &no_path), "has no `runtime_path`"),
        (
            4,
            with_layer(&no_path_of_1),
            "the runtime a has no `runtime_path`",
        ),
    ]);
}

const OLD_PAUSE: &str = "variables: {PAUSE_IMAGE: 'mcr.microsoft.com/oss/kubernetes/pause:3.9'}";

#[test]
fn a_pause_image_that_is_missing_or_too_old_is_refused() {
    let [none, empty, bare] =
        ["", "sandbox = ''", "sandbox = 'registry.k8s.io/pause'"].map(pinned_images);
    let on_2025 = |containerd, layer| Node {
        build: SERVER_2025,
        ..with_containerd(containerd, layer)
    };
    refused(&[
        (5, on_2025("2.3", &none), "names no pause image"),
        (
            5,
            with_containerd("2.3", &empty),
            "the pause image is empty",
        ),
        (
            5,
            with_containerd("2.3", &bare),
            "registry.k8s.io/pause has no tag",
        ),
        (
            5,
            on_2025(NODE.containerd, OLD_PAUSE),
            "has no image for Windows Server 2025",
        ),
    ]);
}

#[test]
fn an_old_pause_image_is_taken_on_a_build_that_it_has() {
    with_layer(OLD_PAUSE).render().expect("taken");
}

#[test]
fn registries_that_containerd_would_not_read_are_refused() {
    let unread_1 = file_and_blocked_registry("version = 2");
    let unread_2 = file_and_blocked_registry(&format!(
        "version = 3\n{NRI_OFF}{RUNTIME}[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = 'C:\\certs.d'"
    ));
    refused(&[
        (
            19,
            with_layer("host: {mirrors: {quay.io/team: {blocked: true}}}"),
            "mirrors.quay.io/team: containerd knows whole registries only",
        ),
        (
            19,
            with_layer("host: {mirrors: {'*.example': {blocked: true}}}"),
            "mirrors.*.example: containerd knows registries by their whole names",
        ),
        (
            19,
            with_layer("host: {mirrors: {'https://quay.io': {blocked: true}}}"),
            "mirrors.https://quay.io: it is a URL",
        ),
        (
            19,
            with_layer(&unread_1),
            r#"write `config_path = 'C:\k\containerd\registries'` below `[plugins."io.containerd.grpc.v1.cri".registry]`"#,
        ),
        (
            19,
            Node {
                profile: "upstream",
                ..with_containerd("2.4", &unread_2)
            },
            "containerd would read none of the profile's `mirrors`, and a blocked registry would be open",
        ),
    ]);
}
