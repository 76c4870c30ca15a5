//! The pages of `docs` as a site: `docs/SUMMARY.md` has all of them, links lead somewhere, and mdBook builds them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use super::{
    pages::{pages, runbooks, under},
    root,
    skipping::skipped,
};

/// The headings of every runbook, in their order.
const HEADINGS: [&str; 4] = ["Meaning", "Effect", "Do", "If that does not help"];

/// Returns the pages of the site, as paths below `docs`. The summary is its contents and no page.
fn of_site() -> BTreeSet<PathBuf> {
    let docs = root().join("docs");
    let mut found = Vec::new();
    under(&docs, "md", &mut found);
    let below = found.into_iter().map(|path| path.strip_prefix(&docs).unwrap().to_owned());
    below.filter(|path| path != Path::new("SUMMARY.md")).collect()
}

/// Returns the prose of a page: no fenced or indented blocks, and no code spans.
fn prose(page: &str) -> String {
    let (mut text, mut is_fenced) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced && !line.starts_with("    ") {
            for part in line.split('`').step_by(2) {
                text += part;
            }
            text.push('\n');
        }
    }
    text
}

/// Returns the targets of a page's links to files and headings. Links to other sites are left out.
fn targets(page: &str) -> Vec<(String, Option<String>)> {
    let text = prose(page);
    let all = text.split("](").skip(1).filter_map(|from| from.split(')').next());
    let own = all.filter(|target| !target.contains("://"));
    own.map(|target| match target.split_once('#') {
        Some((file, heading)) => (file.to_owned(), Some(heading.to_owned())),
        None => (target.to_owned(), None),
    })
    .collect()
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_fenced = false;
    let headings = page.lines().filter(|line| {
        is_fenced ^= line.starts_with("```");
        !is_fenced && line.starts_with('#')
    });
    let anchor = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().chars().filter_map(|c| match c {
            c if c.is_whitespace() => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.flat_map(char::to_lowercase).collect()
    };
    headings.map(anchor).collect()
}

/// Returns a path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(found.pop(), "{}", path.display()),
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

/// Returns the file that a link leads to, from the root of the tree. A link without a file leads to its own page.
fn led_to(from: &Path, file: &str) -> PathBuf {
    if file.is_empty() { from.to_owned() } else { resolved(&from.parent().unwrap().join(file)) }
}

#[test]
fn reader_of_links_and_headings_leaves_code_out() {
    let page = "# A `b` c's\n\n[x](y.md#a-b)\n`[no](no.md)`\n\n```\n# no\n[no](no.md)\n```\n    [no](no.md)\n[z](#q) [s](https://a/b)\n";
    let found = targets(page);
    assert_eq!(found, [("y.md".into(), Some("a-b".into())), (String::new(), Some("q".into()))]);
    assert_eq!(anchors(page), ["a-b-cs".to_owned()].into());
    assert_eq!(led_to(Path::new("docs/runbooks/a.md"), "../b.md"), Path::new("docs/b.md"));
}

#[test]
fn summary_lists_every_page_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let mut listed = BTreeSet::new();
    for (file, heading) in targets(&summary) {
        assert_eq!(heading, None, "{file}: mdBook knows pages only");
        assert!(listed.insert(PathBuf::from(&file)), "{file} is listed twice");
    }
    assert_eq!(listed, of_site(), "docs/SUMMARY.md lists the pages of docs");
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut seen = 0;
    for path in pages() {
        let name = path.strip_prefix(root()).unwrap();
        for (file, heading) in targets(&fs::read_to_string(&path).unwrap()) {
            let led = led_to(name, &file);
            if name.starts_with("docs") {
                let is_page = led.starts_with("docs") && led.extension().is_some_and(|extension| extension == "md");
                assert!(is_page, "{}: the site has no {}: name the file in a code span", name.display(), led.display());
            }
            if let Some(heading) = heading {
                let page = fs::read_to_string(root().join(&led)).unwrap();
                assert!(anchors(&page).contains(&heading), "{}: {} has no #{heading}", name.display(), led.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "the reader of links sees only {seen} headings: it is broken");
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let (mut reached, mut next) = (BTreeSet::new(), vec![PathBuf::from("README.md")]);
    while let Some(page) = next.pop() {
        let text = fs::read_to_string(root().join(&page)).unwrap();
        let led = targets(&text).into_iter().map(|(file, _)| led_to(&page, &file));
        let pages = led.filter(|led| led.extension().is_some_and(|extension| extension == "md"));
        next.extend(pages.filter(|led| !led.ends_with("SUMMARY.md") && reached.insert(led.clone())));
    }
    let missing: Vec<PathBuf> =
        of_site().into_iter().map(|page| Path::new("docs").join(page)).filter(|page| !reached.contains(page)).collect();
    assert_eq!(missing, [""; 0].map(PathBuf::from), "no page links to these");
}

#[test]
fn readme_fits_on_a_page() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 80, "README.md has {} lines", readme.lines().count());
    let commands = readme.lines().filter(|line| line.starts_with("    cargo "));
    assert_eq!(commands.collect::<Vec<_>>(), ["    cargo demo", "    cargo test --workspace"]);
}

#[test]
fn runbooks_have_the_same_four_headings() {
    let mut seen = 0;
    for path in runbooks().into_iter().filter(|path| !path.ends_with("README.md")) {
        let page = fs::read_to_string(&path).unwrap();
        let mut sections = page.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
        let headings: Vec<&str> = sections.clone().map(|(heading, _)| heading).collect();
        assert_eq!(headings, HEADINGS, "{}", path.display());
        assert!(sections.all(|(_, text)| text.trim().len() > 40), "{}: a section is empty", path.display());
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

/// Returns the blocks of YAML in a page.
fn yaml_blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next())
}

/// True if a file has these lines, indented by any number of spaces.
fn has_lines(file: &str, lines: &str) -> bool {
    let indented = |spaces: usize| {
        let all: Vec<String> = lines.lines().map(|line| format!("{}{line}\n", " ".repeat(spaces))).collect();
        all.concat()
    };
    (0..40).any(|spaces| format!("\n{file}").contains(&format!("\n{}", indented(spaces))))
}

#[test]
fn lines_of_a_file_are_found_at_any_depth() {
    let file = "a:\n  b:\n    c: 1\n  d: 2\n";
    assert!(has_lines(file, "b:\n  c: 1\nd: 2") && has_lines(file, "a:"));
    assert!(!has_lines(file, "b:\n  c: 2") && !has_lines(file, "b:\nc: 1") && !has_lines(file, "c: 1\nd: 2"));
}

#[test]
fn tenant_pages_show_the_lines_of_the_examples() {
    let mut files = Vec::new();
    let samples = root().join("config/samples");
    for entry in fs::read_dir(&samples).unwrap() {
        let path = entry.unwrap().path();
        files.extend(path.extension().is_some_and(|extension| extension == "yaml").then_some(path));
    }
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let examples = text(&root().join("docs/tenants/examples.md"));
    for file in &files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        assert!(examples.contains(&format!("`{name}`")), "docs/tenants/examples.md does not list {name}");
    }
    let mut pages = Vec::new();
    under(&root().join("docs/tenants"), "md", &mut pages);
    let mut seen = 0;
    for page in pages {
        let page_text = text(&page);
        for block in yaml_blocks(&page_text) {
            assert!(
                files.iter().any(|file| has_lines(&text(file), block)),
                "{}: no example has\n{block}",
                page.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 9, "the reader of blocks sees only {seen}: it is broken");
}

/// Returns mdbook, from `MDBOOK` or the `PATH`.
fn mdbook() -> Option<PathBuf> {
    let program = std::env::var_os("MDBOOK").map_or_else(|| PathBuf::from("mdbook"), PathBuf::from);
    Command::new(&program).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(program)
}

/// Returns the values of an attribute in a page of HTML.
fn values<'a>(html: &'a str, attribute: &str) -> BTreeSet<&'a str> {
    html.split(&format!(" {attribute}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn mdbook_builds_every_page_without_a_warning() {
    let Some(mdbook) = mdbook() else {
        skipped("mdbook is not on the PATH and not in MDBOOK; .ci/tools installs it");
        return;
    };
    let dir = testbed::binaries::cache().join(format!("run-{}-mdbook", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    let out = Command::new(mdbook).arg("build").arg(root().join("docs")).arg("--dest-dir").arg(&dir).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let built: BTreeMap<PathBuf, String> = of_site()
        .into_iter()
        .map(|page| page.with_extension("html"))
        .map(|page| (page.clone(), fs::read_to_string(dir.join(&page)).unwrap_or_else(|_| panic!("{page:?}"))))
        .collect();
    let mut seen = 0;
    for (page, html) in &built {
        for target in values(html, "href").into_iter().filter(|target| !target.contains("://")) {
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let led = led_to(page, file);
            assert!(dir.join(&led).exists(), "{}: {target} does not exist", page.display());
            if let Some(html) = built.get(&led).filter(|_| !id.is_empty()) {
                assert!(values(html, "id").contains(id), "{}: {target} is no heading", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "the reader of the site sees only {seen} links: it is broken");
    let diagrams = &built[Path::new("city.html")];
    assert!(
        diagrams.contains("class=\"language-mermaid\"") && diagrams.contains("mermaid"),
        "docs/mermaid.js draws it"
    );
    assert!(values(diagrams, "src").iter().any(|script| script.contains("mermaid")), "the page loads docs/mermaid.js");
    fs::remove_dir_all(&dir).unwrap();
}
