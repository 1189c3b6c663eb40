// SPDX-License-Identifier: Apache-2.0
//! What COMPATIBILITY.md says of additions: enums and structs that callers read are `#[non_exhaustive]`, so that a variant or a field may
//! be added. Structs that callers build have `Default`, and names that end in `Options`.

use std::fs;
use std::path::Path;

/// A public enum, or a public struct with public fields: its name, and the lines from its first attribute to its end.
struct Item {
    name: String,
    lines: Vec<String>,
}

fn items() -> Vec<Item> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut items = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder of the sources") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a source");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let rest = match line.strip_prefix("pub enum ").or_else(|| line.strip_prefix("pub struct ")) {
                Some(rest) if line.ends_with('{') => rest,
                _ => continue,
            };
            let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
            let first = lines[..at].iter().rposition(|line| !line.starts_with("#[")).map_or(0, |above| above + 1);
            let end = at + lines[at..].iter().position(|line| *line == "}").expect("an end");
            let lines: Vec<String> = lines[first..end].iter().map(|line| line.trim().to_owned()).collect();
            if line.starts_with("pub enum ") || lines.iter().any(|line| line.starts_with("pub ") && line.ends_with(',')) {
                items.push(Item { name, lines });
            }
        }
    }
    items
}

#[test]
fn what_callers_read_may_grow() {
    let items = items();
    let built: Vec<&Item> = items.iter().filter(|item| item.name.ends_with("Options")).collect();
    assert_eq!(built.len(), 3, "structs that callers build");
    let rest: Vec<&Item> = items.iter().filter(|item| !item.name.ends_with("Options")).collect();
    assert!(rest.len() > 25, "{} were found", rest.len());
    for item in rest {
        assert!(item.lines.iter().any(|line| line == "#[non_exhaustive]"), "{} is not #[non_exhaustive]", item.name);
    }
    for item in built {
        assert!(!item.lines.iter().any(|line| line == "#[non_exhaustive]"), "{} cannot be built", item.name);
    }
}
