//! No circle among the modules of one folder: a file and those below it count together. `tests/tidy.rs` checks the modules at
//! the top of a package by another measure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Modules that may know each other, by package and folder: a simulated host and a simulated cluster are one thing each.
const ONE_THING: [(&str, &str, &[&str]); 2] = [
    (
        "tests/fleet",
        "",
        &["api", "cluster", "host", "manifest", "wmco", "world"],
    ),
    (
        "tests/fleet",
        "host",
        &["computer", "kubelet", "program", "services"],
    ),
];

/// Path of a module within its package.
type Module = Vec<String>;

/// Code of a package, without tests and comments, by module.
struct Package {
    code: BTreeMap<Module, String>,
    /// Names that each module imports, each with the path that it stands for.
    imports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

fn files(under: &Path, top: bool, found: &mut Vec<PathBuf>) {
    if !top && under.join("Cargo.toml").exists() {
        return;
    }
    for entry in fs::read_dir(under).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["tests", "target", "examples", "fuzz"].contains(&name.as_str())
                && !name.starts_with('.')
            {
                files(&path, false, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// Folders with a `Cargo.toml`.
fn packages(under: &Path, found: &mut Vec<PathBuf>) {
    if under.join("Cargo.toml").exists() {
        found.push(under.to_owned());
    }
    for entry in fs::read_dir(under).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir()
            && !["target", "fuzz"].contains(&name.as_str())
            && !name.starts_with('.')
        {
            packages(&entry.path(), found);
        }
    }
}

/// Every path in a `use` tree.
fn expand(prefix: &[&str], tree: &str, into: &mut Vec<Vec<String>>) {
    let parts = |text: &str| -> Vec<String> {
        let own = text.split("::").map(str::trim).filter(|it| !it.is_empty());
        prefix
            .iter()
            .copied()
            .chain(own)
            .map(str::to_owned)
            .collect()
    };
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        into.extend((!path.is_empty()).then(|| parts(path)));
        return;
    };
    let head = parts(head);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let mut depth = 0;
    let mut from = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&head, &list[from..at], into);
                from = at + 1;
            }
            _ => {}
        }
    }
    expand(&head, &list[from..], into);
}

/// Every path that `use` statements import.
fn imported(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let begins = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
        let statement = &rest[at + 4..];
        rest = statement;
        if begins.is_empty() || begins.starts_with("pub") {
            let end = statement.find(';').unwrap_or(statement.len());
            expand(&[], &statement[..end].replace('\n', " "), &mut paths);
            rest = &statement[end..];
        }
    }
    paths
}

/// Every path that is written out in an expression or a type.
fn written(code: &str) -> Vec<Vec<String>> {
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let paths = words.filter(|word| {
        word.contains("::") && word.starts_with(|c: char| c.is_lowercase() || c == '_')
    });
    let parts = |path: &str| {
        path.split("::")
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect()
    };
    paths.map(parts).collect()
}

impl Package {
    fn read(root: &Path) -> Self {
        let inner = root.join("src");
        let source = if inner.join("lib.rs").exists() {
            inner
        } else {
            root.to_owned()
        };
        let source = match source.join("lib.rs").exists() {
            true => source,
            false => root.join("src"),
        };
        let mut found = Vec::new();
        if source.is_dir() {
            files(&source, true, &mut found);
        }
        let mut code = BTreeMap::new();
        for file in found {
            let place = file.strip_prefix(&source).unwrap().with_extension("");
            let mut module: Module = place
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if ["mod", "lib", "main"].contains(&module.last().unwrap().as_str()) {
                module.pop();
            }
            let text = fs::read_to_string(&file).unwrap();
            let product = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default();
            let lines = product
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            code.insert(module, lines.collect::<Vec<_>>().join("\n"));
        }
        let imports = code.iter().map(|(module, code)| {
            let paths = imported(code).into_iter();
            let names = paths.filter_map(|path| Some((path.last()?.clone(), path)));
            (module.clone(), names.collect())
        });
        let imports = imports.collect();
        Self { code, imports }
    }

    /// Module in which the thing of a path is. `None`: it is of another package.
    fn owner(&self, of: &[String], path: &[String], through: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let child = || [of, std::slice::from_ref(first)].concat();
        let mut module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => of.to_vec(),
            "super" => of.split_last()?.1.to_vec(),
            _ if self.code.contains_key(&child()) => child(),
            _ => {
                let import = self.imports.get(of)?.get(first).filter(|it| *it != path)?;
                let module = (through < 4).then(|| self.owner(of, import, through + 1))??;
                return self.inside(module, rest, through);
            }
        };
        while rest.first().is_some_and(|it| it == "super") {
            module.pop();
            rest = &rest[1..];
        }
        self.inside(module, rest, through)
    }

    /// Module below this one, or one from which it imports the next name.
    fn inside(&self, mut module: Module, mut rest: &[String], through: usize) -> Option<Module> {
        while let Some((next, after)) = rest.split_first() {
            let child = [module.as_slice(), std::slice::from_ref(next)].concat();
            if self.code.contains_key(&child) {
                (module, rest) = (child, after);
                continue;
            }
            let import = self.imports.get(&module).and_then(|names| names.get(next));
            let import = import.filter(|import| through < 4 && *import != rest);
            let owner = import.and_then(|import| self.owner(&module, import, through + 1));
            return Some(owner.unwrap_or(module));
        }
        Some(module)
    }

    /// Modules of one folder, each with those that it knows there.
    fn known_in(&self, folder: &[String]) -> BTreeMap<String, BTreeSet<String>> {
        let name_in = |module: &Module| {
            let inside = module.starts_with(folder) && module.len() > folder.len();
            inside.then(|| module[folder.len()].clone())
        };
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, code) in &self.code {
            let Some(name) = name_in(module) else {
                continue;
            };
            let paths = imported(code).into_iter().chain(written(code));
            let owners = paths.filter_map(|path| self.owner(module, &path, 0));
            let others = owners
                .filter_map(|owner| name_in(&owner))
                .filter(|other| *other != name);
            known.entry(name.clone()).or_default().extend(others);
        }
        known
    }
}

/// What is left of `known` without modules that lead to none: circles, and those that lead into one.
fn circles(mut known: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    while let Some(lowest) = known
        .iter()
        .find(|(_, others)| others.iter().all(|other| !known.contains_key(other)))
        .map(|(name, _)| name.clone())
    {
        known.remove(&lowest);
    }
    // From above, too: a module that none knows is in no circle.
    while let Some(highest) = known
        .keys()
        .find(|name| !known.values().any(|others| others.contains(*name)))
        .cloned()
    {
        known.remove(&highest);
    }
    known
}

#[test]
fn the_modules_of_a_folder_make_no_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut roots = Vec::new();
    packages(root, &mut roots);
    assert!(roots.len() > 20, "{roots:?}");
    for folder in roots {
        let package = Package::read(&folder);
        let place = folder.strip_prefix(root).unwrap().display().to_string();
        let folders: BTreeSet<&[String]> = package
            .code
            .keys()
            .filter_map(|it| Some(it.split_last()?.1))
            .collect();
        for folder in folders {
            let mut found = circles(package.known_in(folder));
            let inside = folder.join("/");
            let one = ONE_THING
                .iter()
                .find(|(of, within, _)| *of == place && *within == inside);
            found.retain(|name, _| !one.is_some_and(|(_, _, all)| all.contains(&name.as_str())));
            assert!(
                found.is_empty(),
                "{place}: a circle in {inside:?}: {found:#?}"
            );
        }
    }
}
