//! Validation of a layered profile, independent of any machine: each problem with its place and reason.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    document::Section,
    mirrors::unfit,
    platform::PLATFORMS,
    problem::{Problem, Problems},
    profile::{EvidenceSpec, FileSpec, Profile, SectionSpec, ServiceSpec, When},
    render::text::conditional,
    suggestion::question,
    variables::{Piece, TAINTS, known, log_setting, pieces},
};

/// Checks a layered profile: unknown variables, circular variables and services, conflicting paths, files without
/// content, users that are not services.
///
/// # Errors
/// All problems.
pub fn check(profile: &Profile) -> Result<(), Problems> {
    let mut found = Vec::new();
    own_variables(profile, &mut found);
    for (section, spec) in sections(profile) {
        let value = serde_json::to_value(spec).unwrap_or_default();
        let texts = Texts { profile, section };
        texts.walk(&value, section.as_str(), &mut found);
        shapes(section.as_str(), spec, &mut found);
        users(profile, section.as_str(), spec, &mut found);
    }
    service_circles(profile, &mut found);
    service_sections(profile, &mut found);
    log_settings(profile, &mut found);
    clashing_paths(profile, &mut found);
    Problems::check(found)
}

fn sections(profile: &Profile) -> [(Section, &SectionSpec); 2] {
    [
        (Section::Host, &profile.host),
        (Section::Node, &profile.node),
    ]
}

/// Check of every text of a section: it may use only variables that exist in that section.
struct Texts<'a> {
    profile: &'a Profile,
    section: Section,
}

impl Texts<'_> {
    fn walk(&self, value: &Value, location: &str, found: &mut Vec<Problem>) {
        match value {
            Value::String(text) if location.ends_with(".when.set") => {
                self.name(text, location, found)
            }
            Value::String(text) if location.contains(".when.platform[") => {
                if !PLATFORMS.contains(&text.as_str()) {
                    let near = question(text, PLATFORMS);
                    let reason = format!("there is no platform `{text}`{near}");
                    found.push(Problem::new(location, reason));
                }
            }
            Value::String(text) if text != TAINTS => self.text(text, location, found),
            Value::Array(all) => {
                for (n, one) in all.iter().enumerate() {
                    self.walk(one, &format!("{location}[{n}]"), found);
                }
            }
            Value::Object(all) => {
                if let Err(reason) = conditional(value) {
                    found.push(Problem::new(location, reason));
                }
                for (key, one) in all {
                    self.text(key, location, found);
                    self.walk(one, &format!("{location}.{key}"), found);
                }
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &str, location: &str, found: &mut Vec<Problem>) {
        match pieces(text) {
            Err(reason) => found.push(Problem::new(location, reason)),
            Ok(pieces) => {
                for piece in pieces {
                    if let Piece::Variable(name) = piece {
                        self.name(name, location, found);
                    }
                }
            }
        }
    }

    fn name(&self, name: &str, location: &str, found: &mut Vec<Problem>) {
        if name.is_empty() || self.profile.variables.contains_key(name) {
            return;
        }
        match known(name) {
            None => found.push(Problem::new(
                location,
                format!("there is no variable `{name}`"),
            )),
            Some(known) if known.from == Section::Node && self.section == Section::Host => {
                let reason = format!("`{name}` is known in the node section only");
                found.push(Problem::new(location, reason));
            }
            Some(_) => {}
        }
    }
}

/// Checks the profile's own variables: known names only, and no circle.
fn own_variables(profile: &Profile, found: &mut Vec<Problem>) {
    let texts = Texts {
        profile,
        section: Section::Node,
    };
    let mut uses: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, text) in &profile.variables {
        let location = format!("variables.{name}");
        if known(name).is_some_and(|known| !known.optional) {
            found.push(Problem::new(&location, "dormer itself sets this one"));
        }
        texts.text(text, &location, found);
        let named = pieces(text)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Variable(other) => Some(other),
                Piece::Text(_) | Piece::Secret(_) => None,
            });
        uses.insert(name, named.collect());
    }
    if let Some(circle) = circle(&uses) {
        found.push(Problem::new("variables", format!("{circle} is a circle")));
    }
}

/// Checks the services of both sections: each starts after its dependencies, so none may depend on itself.
fn service_circles(profile: &Profile, found: &mut Vec<Problem>) {
    // Windows takes a service's name in any case.
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, spec) in sections(profile) {
        for (name, service) in &spec.services {
            all.entry(name.to_lowercase())
                .or_default()
                .extend(service.depends.iter().map(|it| it.to_lowercase()));
        }
    }
    let uses = all
        .iter()
        .map(|(name, needed)| (name.as_str(), needed.iter().map(String::as_str).collect()))
        .collect();
    if let Some(circle) = circle(&uses) {
        found.push(Problem::new("services", format!("{circle} is a circle")));
    }
}

/// A service of the host section starts before the node section is there: none of that section may be needed.
fn service_sections(profile: &Profile, found: &mut Vec<Problem>) {
    for (name, service) in &profile.host.services {
        for needed in &service.depends {
            let mut of_node = profile.node.services.keys();
            if of_node.any(|name| name.eq_ignore_ascii_case(needed)) {
                let location = format!("host.services.{name}.depends");
                let reason =
                    format!("`{needed}` is a service of the node section, which comes later");
                found.push(Problem::new(location, reason));
            }
        }
    }
}

/// Settings of the services' logs, where the profile itself has them.
fn log_settings(profile: &Profile, found: &mut Vec<Problem>) {
    for (name, text) in &profile.variables {
        if !text.contains("${")
            && let Some(Err(reason)) = log_setting(name, text)
        {
            found.push(Problem::new(format!("variables.{name}"), reason));
        }
    }
}

/// A circle among names, as `a → b → a`, if there is one.
fn circle(uses: &BTreeMap<&str, Vec<&str>>) -> Option<String> {
    fn visit<'a>(
        name: &'a str,
        uses: &BTreeMap<&'a str, Vec<&'a str>>,
        path: &mut Vec<&'a str>,
        done: &mut Vec<&'a str>,
    ) -> Option<String> {
        if let Some(at) = path.iter().position(|above| *above == name) {
            return Some(format!("{} → {name}", path[at..].join(" → ")));
        }
        if done.contains(&name) {
            return None;
        }
        path.push(name);
        let others = uses.get(name).into_iter().flatten();
        let found = others
            .into_iter()
            .find_map(|other| visit(other, uses, path, done));
        path.pop();
        done.push(name);
        found
    }
    let mut done = Vec::new();
    uses.keys()
        .find_map(|name| visit(name, uses, &mut Vec::new(), &mut done))
}

/// Checks the required fields of entries.
fn shapes(section: &str, spec: &SectionSpec, found: &mut Vec<Problem>) {
    let mut wrong = |location: String, reason: &str| {
        found.push(Problem::new(format!("{section}.{location}"), reason));
    };
    for (path, file) in &spec.files {
        if let Some(reason) = content(file) {
            wrong(format!("files.{path}"), reason);
        }
        if let Some(json) = &file.json {
            conditions(json, format!("files.{path}.json"), &mut wrong);
        }
    }
    for (path, file) in spec.network.iter().flat_map(|network| &network.files) {
        if let Some(reason) = content(file) {
            wrong(format!("network.files.{path}"), reason);
        }
        if let Some(json) = &file.json {
            conditions(json, format!("network.files.{path}.json"), &mut wrong);
        }
    }
    for (
        name,
        ServiceSpec {
            command,
            start_timeout_ms,
            ..
        },
    ) in &spec.services
    {
        if command.is_empty() {
            wrong(format!("services.{name}"), "has no command");
        }
        if *start_timeout_ms == 0 {
            wrong(format!("services.{name}.start_timeout_ms"), "is 0");
        }
    }
    for (name, EvidenceSpec { service, http, .. }) in &spec.evidence {
        if service.is_empty() == http.is_empty() {
            wrong(
                format!("evidence.{name}"),
                "has to have either `service` or `http`",
            );
        }
    }
    for (name, value) in &spec.registry {
        if let Err(reason) = value.checked() {
            wrong(format!("registry.{name}"), reason);
        }
        if let Some(build) = value.windows_builds.iter().find(|build| !is_build(build)) {
            let reason = format!("`{build}` is no Windows build, such as 10.0.20348");
            wrong(format!("registry.{name}.windows_builds"), &reason);
        }
    }
    for (name, image) in &spec.images {
        if !spec.payload.contains_key(&image.archive) {
            let reason = "its `archive` is not among the section's `payload`";
            wrong(format!("images.{name}"), reason);
        }
        if !spec.services.contains_key(&image.service) {
            wrong(
                format!("images.{name}"),
                "its `service` is not in this section",
            );
        }
    }
    for (name, rule) in &spec.firewall {
        if rule.port == 0 {
            wrong(format!("firewall.{name}.port"), "names no port");
        }
    }
    for registry in spec.mirrors.keys() {
        if let Some(why) = unread(registry) {
            wrong(format!("mirrors.{registry}"), why);
        }
    }
    if !spec.mirrors.is_empty() && spec.mirrors_folder.is_empty() {
        wrong("mirrors_folder".into(), "is empty, but there are mirrors");
    }
    for (name, service) in spec
        .services
        .iter()
        .filter(|(_, service)| service.needs_network)
    {
        if spec.network.is_none() && service.needs_network {
            wrong(
                format!("services.{name}.needs_network"),
                "the section has no network",
            );
        }
    }
}

/// Why containerd would not read what a layer says of a registry: one that is blocked would be open.
fn unread(registry: &str) -> Option<&'static str> {
    // `*` is every registry that has no entry. A variable is filled in later.
    if registry == "*" || registry.contains("${") {
        return None;
    }
    match registry.split_once("//") {
        Some((scheme, _)) => unfit(scheme, "/"),
        None if registry.contains('/') => {
            Some("containerd knows whole registries only: write the registry alone")
        }
        None => unfit(registry, ""),
    }
}

/// Whether a text is a Windows build by its full number.
fn is_build(text: &str) -> bool {
    let number = text.strip_prefix("10.0.");
    number.is_some_and(|it| it.len() == 5 && it.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A condition in a `json` file belongs to one value. Half of the pair, or more than it, would reach the program as it is.
fn conditions(value: &Value, location: String, wrong: &mut impl FnMut(String, &str)) {
    match value {
        Value::Array(all) => {
            for (n, one) in all.iter().enumerate() {
                conditions(one, format!("{location}[{n}]"), wrong);
            }
        }
        Value::Object(all) => {
            let when = all.get("when").filter(|when| when.is_object());
            let when = when.and_then(|when| When::deserialize(when).ok());
            match (when, all.contains_key("value")) {
                (Some(_), true) if all.len() > 2 => {
                    let reason = "has `when`, `value` and other keys: the program would get all of them as they are. Write \
                                  each key with a condition as `KEY: {when: …, value: …}`";
                    wrong(location.clone(), reason);
                }
                (Some(when), false) if !when.is_always() => {
                    let reason = "has `when` without `value`: write `{when: …, value: …}`";
                    wrong(location.clone(), reason);
                }
                _ => {}
            }
            for (key, one) in all {
                conditions(one, format!("{location}.{key}"), wrong);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn content(file: &FileSpec) -> Option<&'static str> {
    let both = file.content.is_some() == file.json.is_some();
    both.then_some("has to have either `content` or `json`")
}

/// Services that read a file have to be services of the profile.
fn users(profile: &Profile, section: &str, spec: &SectionSpec, found: &mut Vec<Problem>) {
    let network = spec.network.iter().flat_map(|network| &network.files);
    let own = spec.files.iter().map(|file| ("files", file));
    for (location, (path, file)) in own.chain(network.map(|file| ("network.files", file))) {
        for user in &file.users {
            if !sections(profile)
                .iter()
                .any(|(_, spec)| spec.services.contains_key(user))
            {
                let location = format!("{section}.{location}.{path}.users");
                found.push(Problem::new(
                    location,
                    format!("there is no service `{user}`"),
                ));
            }
        }
    }
}

/// Windows treats `C:\k\A` and `c:\k\a` as the same path: two entries for one path would undo each other.
fn clashing_paths(profile: &Profile, found: &mut Vec<Problem>) {
    let mut known_paths: BTreeMap<String, String> = BTreeMap::new();
    for (section, spec) in sections(profile) {
        let network = spec.network.iter().flat_map(|network| network.files.keys());
        let named = |kind: &'static str| move |path: &String| (kind, path.clone());
        let paths = (spec.directories.keys().map(named("directories")))
            .chain(spec.files.keys().map(named("files")))
            .chain(network.map(named("network.files")));
        for (kind, path) in paths {
            let location = format!("{}.{kind}.{path}", section.as_str());
            let plain = path.to_lowercase().replace('/', "\\");
            let plain = plain.trim_end_matches('\\').to_owned();
            if let Some(other) = known_paths.insert(plain, location.clone()) {
                found.push(Problem::new(
                    location,
                    format!("is the same path as {other}"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::layers::{Layer, stack};

    fn problems(yaml: &str) -> String {
        let layer = Layer::parse("user", yaml).expect("it can be read");
        stack(&[layer]).expect_err("it is refused").to_string()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table reads from top to bottom")]
    fn a_mistake_is_reported_with_location_and_reason() {
        let table = [
            (
                "host: {hostname: '${NOPE}'}",
                "host.hostname: there is no variable `NOPE`",
            ),
            (
                "host: {hostname: '${NODE_NAME}'}",
                "`NODE_NAME` is known in the node section only",
            ),
            (
                "host: {directories: {'C:\\${X}': {}}}",
                "there is no variable `X`",
            ),
            (
                "host: {routes: {1.1.1.1/32: {when: {set: X}}}}",
                "when.set: there is no variable `X`",
            ),
            ("host: {hostname: 'a${b'}", "`${` without `}`"),
            (
                "variables: {A: '${B}', B: '${A}'}",
                "variables: A → B → A is a circle",
            ),
            (
                "variables: {NODE_IP: x}",
                "variables.NODE_IP: dormer itself sets this one",
            ),
            (
                "{host: {services: {a: {command: [x], depends: [b]}}}, \
                 node: {services: {b: {command: [x], depends: [a]}}}}",
                "services: a → b → a is a circle",
            ),
            (
                "{host: {services: {a: {command: [x], depends: [b]}}}, node: {services: {b: {command: [x]}}}}",
                "host.services.a.depends: `b` is a service of the node section",
            ),
            (
                "variables: {LOG_FILE_AGE: notaduration}",
                "variables.LOG_FILE_AGE: `notaduration` is no duration",
            ),
            (
                "variables: {LOG_FILE_SIZE: 10 MB}",
                "variables.LOG_FILE_SIZE: `10 MB` is no quantity",
            ),
            (
                "host: {files: {'C:\\a': {json: {k: {when: {kubelet: '1'}, value: 1}}}}}",
                "host.files.C:\\a.json.k: when: `1` is no range of releases",
            ),
            (
                "host: {files: {'C:\\a': {json: [{when: {set: X}, value: 1}]}}}",
                "json[0].when.set: there is no variable `X`",
            ),
            (
                "host: {files: {'C:\\a': {json: {k: {when: {set: NO_PROXY}, value: 1, other: 2}}}}}",
                "host.files.C:\\a.json.k: has `when`, `value` and other keys",
            ),
            (
                "host: {files: {'C:\\a': {json: [{k: {when: {set: NO_PROXY}}}]}}}",
                "host.files.C:\\a.json[0].k: has `when` without `value`",
            ),
            (
                "host: {files: {'C:\\a': {}}}",
                "files.C:\\a: has to have either",
            ),
            (
                "host: {files: {'C:\\a': {content: x, users: [k]}}}",
                "users: there is no service `k`",
            ),
            (
                "{host: {files: {'C:\\K\\a': {content: x}}}, \
                 node: {files: {'c:\\k\\A': {content: y}}}}",
                "node.files.c:\\k\\A: is the same path as host.files.C:\\K\\a",
            ),
            (
                "host: {directories: {'C:\\a\\': {}}, files: {'C:\\a': {content: x}}}",
                "host.files.C:\\a: is the same path as host.directories.C:\\a\\",
            ),
            (
                "host: {services: {a: {}}}",
                "host.services.a: has no command",
            ),
            (
                "host: {services: {a: {command: [x], needs_network: true}}}",
                "has no network",
            ),
            (
                "host: {firewall: {a: {}}}",
                "host.firewall.a.port: names no port",
            ),
            (
                "host: {registry: {a: {key: 'X\\Y', name: Z}}}",
                "host.registry.a: has to have one of",
            ),
            (
                "host: {registry: {a: {key: 'X\\Y', name: Z, dword: 1, text: x}}}",
                "host.registry.a: has to have one of",
            ),
            (
                "host: {registry: {a: {key: 'HKLM\\X', name: Z, dword: 1}}}",
                "host.registry.a: the key is written without",
            ),
            (
                "host: {registry: {a: {key: X, dword: 1}}}",
                "host.registry.a: has no name",
            ),
            (
                "host: {images: {a: {archive: a.tar}}}",
                "host.images.a: its `archive` is not among",
            ),
            (
                "host: {payload: {a.tar: {}}, images: {a: {archive: a.tar, service: b}}}",
                "host.images.a: its `service` is not in this section",
            ),
            (
                "host: {evidence: {a: {}}}",
                "host.evidence.a: has to have either",
            ),
            (
                "host: {mirrors: {quay.io: {}}}",
                "host.mirrors_folder: is empty",
            ),
        ];
        for (yaml, wanted) in table {
            let report = problems(yaml);
            assert!(
                report.contains(wanted),
                "{yaml}\ntold: {report}\nwanted: {wanted}"
            );
        }
    }

    #[test]
    fn several_mistakes_are_reported_at_once() {
        let report = problems("host: {hostname: '${X}', firewall: {a: {}}, services: {s: {}}}");
        assert_eq!(report.lines().count(), 3, "{report}");
    }
}
