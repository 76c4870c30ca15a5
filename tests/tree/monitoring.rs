//! Monitoring of the manager: alerts with runbooks and unit tests, the dashboard, and the platform's metrics of project objects.
//! Every query uses an existing metric.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use compute_operator::api::{meta, reason};
use serde_json::{Value, json};

use super::{
    manifests::{kustomize, objects, of_kind, rights},
    optional::{OPTIONAL, rendered_with},
    root,
    skipping::skipped,
};

/// Prefixes of the operator's metrics. Other names in an expression are functions, labels and Prometheus' own metrics.
const FAMILIES: [&str; 7] =
    ["compute_", "controller_runtime_", "workqueue_", "leader_election_", "rest_client_", "process_", "certificate_"];

/// Returns every series that the manager can export, read from the table in `src/metrics/families.rs`.
fn series() -> BTreeSet<String> {
    let source = fs::read_to_string(root().join("src/metrics/families.rs")).unwrap();
    let table = source.split("\nfamilies! {").nth(1).unwrap().split("\n}").next().unwrap();
    let mut told = BTreeSet::new();
    for row in table.split(";\n").filter(|row| row.contains('"')) {
        let (kind, name) = (row.split_once(':').unwrap().1, row.split('"').nth(1).unwrap());
        let endings: &[&str] = match kind.split('"').next().unwrap() {
            histogram if histogram.contains("Histogram") => &["_bucket", "_sum", "_count"],
            counter if counter.contains("Counter") => &["_total"],
            _ => &[""],
        };
        told.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    let process = fs::read_to_string(root().join("src/metrics/process.rs")).unwrap();
    let names = process.split('"').skip(1).step_by(2).filter(|text| text.starts_with("process_"));
    told.extend(
        names.map(|name| if name == "process_cpu_seconds" { format!("{name}_total") } else { name.to_owned() }),
    );
    assert!(told.len() > 40, "the reader of the table sees only {}: it is broken", told.len());
    told
}

/// Returns the operator's metrics in an expression.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.filter(|word| FAMILIES.iter().any(|family| word.starts_with(family)))
}

fn documents(file: &str) -> Vec<Value> {
    testbed::manifests::documents(&fs::read_to_string(root().join(file)).unwrap()).unwrap()
}

/// Returns the rule groups in Prometheus' own format.
fn groups() -> Value {
    let [rule] = &documents("config/components/alerts/rules.yaml")[..] else { panic!("one PrometheusRule") };
    rule["spec"].clone()
}

fn alerts() -> Vec<Value> {
    let groups = groups();
    let rules = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.cloned().collect()
}

#[test]
fn metrics_page_lists_every_metric_with_kind_and_help() {
    let page = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let sources: String = ["families", "process"]
        .map(|file| fs::read_to_string(root().join(format!("src/metrics/{file}.rs"))).unwrap())
        .concat();
    let mut listed = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, meaning, _] = columns[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        assert!(sources.contains(&format!("\"{meaning}\"")), "{name}: its help is another than {meaning:?}");
        for label in labels.split(", ").filter(|label| !label.is_empty()) {
            assert!(sources.contains(&format!("pub(super) {}:", label.trim_matches('`'))), "{name}: {label}");
        }
        let series: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        for ending in series {
            assert!(listed.insert(format!("{name}{ending}")), "{name} is listed twice");
        }
    }
    assert_eq!(listed, series());
}

#[test]
fn alert_uses_existing_metrics_and_has_a_runbook() {
    let series = series();
    let mut seen = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let expression = alert["expr"].as_str().unwrap();
        for metric in named(expression) {
            assert!(series.contains(metric), "{name}: {metric} does not exist");
        }
        assert!(
            expression.contains("job=\"compute-metrics\""),
            "{name}: other programs have metrics of these names too"
        );
        assert!(["critical", "warning"].contains(&alert["labels"]["severity"].as_str().unwrap()), "{name}");
        for text in ["summary", "description", "command"] {
            assert!(alert["annotations"][text].as_str().is_some_and(|text| !text.is_empty()), "{name}: no {text}");
        }
        let file = runbook(&alert);
        let page = fs::read_to_string(root().join("docs/runbooks").join(&file))
            .unwrap_or_else(|_| panic!("{name}: {file} does not exist"));
        assert!(page.contains(&format!("`{name}`")), "{file} does not say that it is for {name}");
        let list = fs::read_to_string(root().join("docs/runbooks/README.md")).unwrap();
        assert!(list.contains(&format!("`{name}`")), "docs/runbooks/README.md does not list {name}");
        assert!(seen.insert(name.clone()), "{name} is listed twice");
    }
    assert!(seen.len() > 15);
}

/// Returns the file of an alert's runbook. The address is absolute, and of this version.
fn runbook(alert: &Value) -> String {
    let address = alert["annotations"]["runbook_url"].as_str().unwrap();
    let file = address.rsplit('/').next().unwrap();
    assert_eq!(address, reason::page::runbook_url(file), "{}: the address is not of this version", alert["alert"]);
    file.to_owned()
}

/// Returns the first command of each alert, with a name in place of each template.
pub fn commands_of_alerts() -> Vec<(String, String)> {
    let command = |alert: &Value| {
        let mut command = alert["annotations"]["command"].as_str().unwrap().to_owned();
        for (before, after) in [("{{ with $labels.cluster }}", ""), ("{{ . }}", "name")] {
            command = command.replace(before, after);
        }
        if let Some((before, _)) = command.clone().split_once("{{ else }}") {
            before.clone_into(&mut command);
        }
        while let Some((before, rest)) = command.clone().split_once("{{ $labels.") {
            command = format!("{before}name{}", rest.split_once(" }}").unwrap().1);
        }
        assert!(!command.contains("{{"), "{command}");
        (alert["alert"].as_str().unwrap().to_owned(), command)
    };
    alerts().iter().map(command).collect()
}

/// The summary of an alert has what tells it from another alert of its name. What its rule does not keep is nothing there.
#[test]
fn alert_texts_use_kept_labels_and_the_summary_names_cluster_city_and_reason() {
    for alert in alerts() {
        let (name, rule) = (alert["alert"].as_str().unwrap(), alert["expr"].as_str().unwrap());
        let kept: BTreeSet<&str> =
            rule.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", ")).collect();
        let text = |which: &str| alert["annotations"][which].as_str().unwrap();
        for which in ["summary", "description", "command"] {
            for label in text(which).split("$labels.").skip(1) {
                let label = label.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap();
                assert!(kept.contains(label), "{name}: its rule does not keep {label}");
            }
        }
        for label in ["cluster", "city", "reason", "state", "namespace", "leg", "host", "certificate"] {
            let is_named = text("summary").contains(&format!("$labels.{label}"));
            assert!(is_named || !kept.contains(label), "{name}: its summary does not name {label}");
        }
    }
}

#[test]
fn runbooks_begin_with_their_alerts_and_reasons() {
    let write = std::env::var_os("WRITE_RUNBOOKS").is_some();
    let mut seen = 0;
    for entry in fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        if file == "README.md" {
            continue;
        }
        let alerts: Vec<Value> = alerts().into_iter().filter(|alert| runbook(alert) == file).collect();
        let names: Vec<&str> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
        let wanted = reason::page::runbook_head(&file, &names);
        let page = fs::read_to_string(&path).unwrap();
        let (title, rest) = page.split_once("\n\n").unwrap();
        if write {
            let rest = if rest.starts_with("Alerts: ") { rest.split_once("\n\n").unwrap().1 } else { rest };
            fs::write(&path, format!("{title}\n\n{wanted}\n{rest}")).unwrap();
        } else {
            let is_there = rest.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with('\n'));
            assert!(
                is_there,
                "{file}: run `WRITE_RUNBOOKS=1 cargo test --test tree runbooks` and commit what it writes"
            );
        }
        seen += 1;
    }
    assert!(seen > 12, "only {seen} runbooks");
}

#[test]
fn alert_fires_in_a_unit_test() {
    let [tests] = &documents("tests/alerts/rules_test.yaml")[..] else { panic!("one document") };
    let expected = tests.to_string();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(expected.contains(&format!("alertname=\\\"{name}\\\"")), "no unit test has {name} fire");
    }
}

/// Returns the components that only add objects, each with its objects. A kustomization may use them without an overlay.
pub fn alone() -> Vec<(&'static str, String)> {
    let dirs = OPTIONAL.iter().map(|(component, _)| (*component, root().join("config/components").join(component)));
    let changes = |dir: &Path| fs::read_to_string(dir.join("kustomization.yaml")).unwrap().contains("\npatches:\n");
    dirs.filter(|(_, dir)| !changes(dir)).map(|(component, dir)| (component, kustomize(&dir))).collect()
}

/// Without an overlay, the monitoring objects went to the default namespace of the user who applied them.
#[test]
fn monitoring_components_without_overlay_are_in_the_manager_namespace() {
    let mut beside = BTreeSet::new();
    for (component, text) in alone() {
        for object in testbed::manifests::documents(&text).unwrap() {
            let metadata = &object["metadata"];
            if component == "resource-metrics" {
                assert_eq!(metadata["namespace"], Value::Null, "a policy of Milo's is in none");
                continue;
            }
            assert_eq!(metadata["namespace"], "compute-system", "{component}: {} {}", object["kind"], metadata["name"]);
            beside.insert(component);
        }
    }
    assert_eq!(beside, ["alerts", "dashboards", "service-monitor"].into());
}

/// Returns the rows of a table in a test's source, from `begin` to the end of the constant. Each row starts at its bracket.
fn rows_of<'a>(source: &'a str, begin: &str) -> Vec<&'a str> {
    let (_, table) = source.split_once(begin).unwrap_or_else(|| panic!("{begin} is missing"));
    table.split("\n];\n").next().unwrap().split("\n    (").skip(1).collect()
}

/// Returns the text between the first two quotation marks, and the rest.
fn quoted(text: &str) -> (&str, &str) {
    let (_, rest) = text.split_once('"').unwrap();
    rest.split_once('"').unwrap()
}

#[test]
fn testing_page_lists_the_metrics_and_alerts_that_cargo_test_does_not_prove() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let page = read("docs/testing.md");
    let (_, section) = page.split_once("\n## What no test proves\n").expect("the section is there");
    let named = |beginning: &str| -> BTreeSet<String> {
        let point = section.split("\n- ").find(|point| point.starts_with(beginning));
        let point = point.unwrap_or_else(|| panic!("no point begins with {beginning:?}")).split("\n\n").next().unwrap();
        let spans = point.split('`').skip(1).step_by(2);
        spans.filter(|span| span.starts_with("compute_") || span.starts_with("Compute")).map(str::to_owned).collect()
    };
    let elsewhere = read("tests/long/elsewhere.rs");
    let rows = rows_of(&elsewhere, "pub const ELSEWHERE: ");
    let moved = rows.iter().map(|row| (quoted(row).0, quoted(quoted(row).1).0));
    let long: BTreeSet<String> =
        moved.filter(|(_, file)| file.starts_with("long/")).map(|(metric, _)| metric.to_owned()).collect();
    assert_eq!(named("**Metrics**"), long);
    let table = read("tests/long/alerts/mod.rs");
    let rows = rows_of(&table, "const ALERTS: ");
    assert_eq!(rows.len(), alerts().len());
    let unprovoked = rows.iter().filter(|row| row.contains("ByUnitTest("));
    assert_eq!(named("**Alerts**"), unprovoked.map(|row| quoted(row).0.to_owned()).collect());
    assert!(!long.is_empty());
}

/// Returns promtool, from `PROMTOOL` or the `PATH`.
fn promtool() -> Option<PathBuf> {
    let program = std::env::var_os("PROMTOOL").map_or_else(|| PathBuf::from("promtool"), PathBuf::from);
    Command::new(&program).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(program)
}

fn run(program: &Path, args: &[&str], dir: &Path) -> Result<(), String> {
    let out = Command::new(program).args(args).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn rules_and_their_unit_tests_pass_promtool() {
    let Some(promtool) = promtool() else {
        skipped("promtool is not on the PATH and not in PROMTOOL; .ci/tools installs it");
        return;
    };
    let dir = testbed::binaries::cache().join(format!("run-{}-promtool", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    // JSON is YAML.
    fs::write(dir.join("rules.yaml"), groups().to_string()).unwrap();
    let tests = fs::read_to_string(root().join("tests/alerts/rules_test.yaml")).unwrap();
    let tests = tests.replace("runbook_url: DOCS/", &format!("runbook_url: {}/", reason::DOCS));
    fs::write(dir.join("rules_test.yaml"), &tests).unwrap();
    // The check detects an alert that does not fire.
    fs::write(dir.join("wrong_test.yaml"), tests.replace("alertname=\"ComputeNoLeader\"", "alertname=\"Other\""))
        .unwrap();
    let checked = run(&promtool, &["check", "rules", "rules.yaml"], &dir);
    let tested = run(&promtool, &["test", "rules", "rules_test.yaml"], &dir);
    let wrong = run(&promtool, &["test", "rules", "wrong_test.yaml"], &dir);
    fs::write(dir.join("board.yaml"), queries_as_rules().to_string()).unwrap();
    let queries = run(&promtool, &["check", "rules", "board.yaml"], &dir);
    fs::remove_dir_all(&dir).unwrap();
    checked.unwrap();
    tested.unwrap();
    queries.unwrap();
    assert!(wrong.unwrap_err().contains("ComputeNoLeader"));
}

/// Returns every query of the dashboard as a rule that promtool can check.
fn queries_as_rules() -> Value {
    let board = board();
    let targets =
        board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let rules: Vec<Value> = targets
        .enumerate()
        .map(|(nth, target)| {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
            json!({ "record": format!("board:query:{nth}"), "expr": query })
        })
        .collect();
    assert!(rules.len() > 30);
    json!({ "groups": [{ "name": "board", "rules": rules }] })
}

fn board() -> Value {
    serde_json::from_str(&testbed::dashboard::text()).unwrap()
}

#[test]
fn dashboard_equals_what_its_table_generates() {
    let stands = fs::read_to_string(root().join(testbed::dashboard::FILE)).unwrap_or_default();
    assert!(stands == testbed::dashboard::text(), "run `cargo testbed board` and commit what it writes");
}

#[test]
fn dashboard_shows_every_metric_and_no_other() {
    let series = series();
    let mut shown = BTreeSet::new();
    for panel in board()["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            for metric in named(query) {
                assert!(series.contains(metric), "{}: {metric} does not exist", panel["title"]);
                shown.insert(metric.to_owned());
            }
            assert!(query.contains("job=~\"$job\""), "{query}: other programs have metrics of these names too");
            assert!(!query.contains("$target"), "{query}");
            // A counter is shown as a rate. A legend only uses labels that the query keeps.
            assert_eq!(
                query.contains("_total{"),
                query.contains("increase(") || query.contains("rate(") && !query.contains("_bucket{"),
                "{query}"
            );
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                let kept = query.split("by (").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default();
                assert!(kept.split(", ").any(|kept| kept == label), "{query}: {label} is not kept");
            }
        }
    }
    // A histogram counts as one metric.
    let of =
        |name: &str| name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count").to_owned();
    let (shown, told): (BTreeSet<_>, BTreeSet<_>) =
        (shown.iter().map(|name| of(name)).collect(), series.iter().map(|name| of(name)).collect());
    assert_eq!(shown, told);
}

#[test]
fn dashboard_panels_have_description_unit_and_separate_places() {
    let board = board();
    let (mut ids, mut titles, mut places) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()) && titles.insert(title), "{title} is used twice");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{title} is beyond the edge");
            for y in at("y")..at("y") + at("h") {
                assert!(places.insert((x, y)), "{title} covers another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{title}");
        assert!(
            ["short", "s", "ops", "bytes"].contains(&panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap()),
            "{title}"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    }
}

/// The first thing on the dashboard answers whether the federation is well, and the second one who waits.
#[test]
fn dashboard_begins_with_numbers_and_the_table_of_who_waits() {
    let board = board();
    let panels = board["panels"].as_array().unwrap();
    assert_eq!((&panels[0]["type"], &panels[0]["title"]), (&json!("row"), &json!("Is it well?")));
    let first: Vec<&Value> = panels[1..].iter().take_while(|panel| panel["type"] == "stat").collect();
    assert!(first.len() > 5, "{first:#?}");
    let y = &first[0]["gridPos"]["y"];
    for panel in &first {
        let title = panel["title"].as_str().unwrap();
        assert_eq!(panel["gridPos"]["y"], *y, "{title} is in the first row");
        let steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array().unwrap();
        assert!(steps.len() > 1 && steps[0]["value"].is_null(), "{title}: {steps:?}");
        let of = |colour: &str| steps.iter().position(|step| step["color"] == colour);
        let is_time = panel["fieldConfig"]["defaults"]["unit"] == "s";
        // No trouble is 0, so that green is lowest. Time is better if there is more.
        assert_eq!(of("green"), Some(if is_time { steps.len() - 1 } else { 0 }), "{title}");
        let query = panel["targets"][0]["expr"].as_str().unwrap();
        assert!(is_time || query.ends_with(" or vector(0)"), "{title} has no number if nothing is wrong: {query}");
        assert_eq!(panel["targets"][0]["instant"], true, "{title}");
    }
    // Numbers that a person waits for are those of the table.
    let [table] = &panels.iter().filter(|panel| panel["type"] == "table").collect::<Vec<_>>()[..] else {
        panic!("one table")
    };
    assert_eq!(panels[1 + first.len()], **table, "the table follows");
    let (query, organize) = (&table["targets"][0], &table["transformations"][0]["options"]);
    assert_eq!((&query["format"], &query["instant"]), (&json!("table"), &json!(true)));
    let kept = query["expr"].as_str().unwrap().split("by (").nth(1).unwrap().split(')').next().unwrap();
    let columns: BTreeSet<&str> = kept.split(", ").chain(["Value"]).collect();
    for place in ["indexByName", "renameByName"] {
        let named: BTreeSet<&str> = organize[place].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(named, columns, "{place}");
    }
    let shown: Vec<&Value> = organize["renameByName"].as_object().unwrap().values().collect();
    for rule in table["fieldConfig"]["overrides"].as_array().unwrap() {
        assert!(shown.contains(&&rule["matcher"]["options"]), "{rule}");
    }
    assert!(shown.contains(&&table["options"]["sortBy"][0]["displayName"]));
    // Every party of the table has a colour.
    let colours = &table["fieldConfig"]["overrides"][0]["properties"][0]["value"][0]["options"];
    for who in reason::Reason::ALL.iter().filter_map(|reason| reason.entry()).map(|entry| entry.who.label()) {
        assert!(colours[who]["color"].is_string(), "{who}");
    }
}

#[test]
fn dashboard_links_every_panel_to_a_page_of_this_version() {
    let board = board();
    let docs = format!("{}/", reason::DOCS);
    let mut runbooks = BTreeSet::new();
    let panels = board["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    for panel in panels.chain([&board]) {
        let links = panel["links"].as_array().unwrap_or_else(|| panic!("{}: no links", panel["title"]));
        assert!(!links.is_empty(), "{}", panel["title"]);
        for link in links {
            let url = link["url"].as_str().unwrap();
            let page = url.strip_prefix(&docs).unwrap_or_else(|| panic!("{url} is not of this version"));
            assert!(root().join("docs").join(page).exists(), "{}: docs/{page} does not exist", panel["title"]);
            runbooks.extend(page.strip_prefix("runbooks/").map(str::to_owned));
        }
    }
    // A reader finds the runbook of an alert from the panel of its metric too.
    for alert in alerts() {
        assert!(runbooks.contains(&runbook(&alert)), "{}", alert["alert"]);
    }
}

/// Alerts and dashboards of the platform use the Go operator's names and labels.
#[test]
fn resource_metrics_policy_keeps_the_go_operator_names() {
    let told = testbed::manifests::documents(&rendered_with("resource-metrics", "milo")).unwrap();
    let policy = of_kind(&told, "ResourceMetricsPolicy")[0];
    assert_eq!(policy["metadata"]["name"], "compute-metrics");
    let (info, condition) = ("name namespace uid", "name namespace condition reason status");
    let mut wanted = BTreeMap::from([(
        "instances instance_network_interface_info".to_owned(),
        "name namespace network_ip external_ip".to_owned(),
    )]);
    for (plural, metric) in
        [("workloads", "workload"), ("workloaddeployments", "workload_deployment"), ("instances", "instance")]
    {
        wanted.insert(format!("{plural} {metric}_info"), info.to_owned());
        wanted.insert(format!("{plural} {metric}_status_condition"), condition.to_owned());
    }
    let mut found = BTreeMap::new();
    for generator in policy["spec"]["generators"].as_array().unwrap() {
        let (resource, family) = (&generator["resource"], &generator["families"][0]);
        assert_eq!((&resource["group"], &resource["version"]), (&meta::GROUP.into(), &meta::VERSION.into()));
        let metric = family["name"].as_str().unwrap().strip_prefix("datum_cloud_compute_").unwrap();
        let labels =
            family["metrics"][0]["labels"].as_array().unwrap().iter().map(|label| label["name"].as_str().unwrap());
        let plural = resource["resource"].as_str().unwrap();
        found.insert(format!("{plural} {metric}"), labels.collect::<Vec<_>>().join(" "));
    }
    assert_eq!(found, wanted);
    // The platform reads the objects through the aggregated reader roles.
    let objects = objects("single-project");
    let label = "resourcemetrics.miloapis.com/aggregate-to-reader";
    let readers: Vec<_> = of_kind(&objects, "ClusterRole")
        .into_iter()
        .filter(|role| role["metadata"]["labels"][label] == "true")
        .collect();
    assert_eq!(readers.len(), 1);
    let read = rights(&objects, readers[0]["metadata"]["name"].as_str().unwrap());
    for key in found.keys() {
        let plural = key.split(' ').next().unwrap();
        for verb in ["get", "list", "watch"] {
            assert!(read.contains(&format!("{}/{plural} {verb}", meta::GROUP)), "{plural} {verb}");
        }
    }
}
