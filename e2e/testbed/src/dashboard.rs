//! The manager's Grafana dashboard, generated from one table.

mod rows;

use serde_json::{Value, json};

use self::rows::{Limits, Panel, ROWS, Stat, TABLE, WELL};

/// Path of the dashboard, from the repository's root.
pub const FILE: &str = "config/components/dashboards/compute-manager.json";

/// Columns of Grafana's grid.
const WIDTH: usize = 24;
/// Panels in one row of the grid.
const BESIDE: usize = 3;
/// Rows of the grid that a panel takes.
const HEIGHT: usize = 8;

/// Label selector of every query.
const TARGET: &str = "job=~\"$job\",namespace=~\"$namespace\",pod=~\"$pod\"";

/// Address of the pages of this version.
const DOCS: &str =
    concat!("https://github.com/datum-cloud/compute-operator/blob/v", env!("CARGO_PKG_VERSION"), "/docs");
/// Rows of the grid that a number takes.
const LOW: usize = 4;

/// Returns the dashboard in Grafana's import format.
pub fn text() -> String {
    let mut panels = vec![row("Is it well?", 1, 0)];
    for (nth, stat) in WELL.iter().enumerate() {
        panels.push(number(stat, panels.len() + 1, nth * (WIDTH / WELL.len()), 1));
    }
    panels.push(table(panels.len() + 1, 1 + LOW));
    let mut at = 1 + LOW + HEIGHT;
    for (title, beside) in ROWS {
        panels.push(row(title, panels.len() + 1, at));
        at += 1;
        for (nth, panel) in beside.iter().enumerate() {
            let (x, y) = (nth % BESIDE * (WIDTH / BESIDE), at + nth / BESIDE * HEIGHT);
            panels.push(series(panel, panels.len() + 1, x, y));
        }
        at += beside.len().div_ceil(BESIDE) * HEIGHT;
    }
    let board = json!({
        "uid": "compute-manager", "title": "Compute / Manager", "tags": ["compute"], "schemaVersion": 39,
        "editable": false, "graphTooltip": 1, "refresh": "30s", "timezone": "utc",
        "time": { "from": "now-6h", "to": "now" },
        "links": [link("Runbooks", "runbooks/README.md"), link("Reasons", "reasons.md"), link("Metrics", "metrics.md")],
        "templating": { "list": [
            { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
            variable("job", "label_values(leader_election_master_status, job)"),
            variable("namespace", "label_values(leader_election_master_status{job=~\"$job\"}, namespace)"),
            variable("pod", "label_values(leader_election_master_status{job=~\"$job\",namespace=~\"$namespace\"}, pod)"),
        ] },
        "panels": panels,
    });
    format!("{board:#}\n")
}

fn row(title: &str, id: usize, y: usize) -> Value {
    json!({
        "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
        "gridPos": { "h": 1, "w": WIDTH, "x": 0, "y": y },
    })
}

/// A link of a panel or of the dashboard, to a page of this version.
fn link(title: &str, page: &str) -> Value {
    json!({ "title": title, "type": "link", "url": format!("{DOCS}/{page}"), "targetBlank": true })
}

/// Title of the link to a page.
fn called(page: &str) -> String {
    let kind = if page.starts_with("runbooks/") { "Runbook" } else { "Page" };
    let name = page.trim_start_matches("runbooks/").trim_end_matches(".md").replace('-', " ");
    if name == "README" { "Runbooks".to_owned() } else { format!("{kind}: {name}") }
}

/// A query for the values of this moment.
fn now(query: &str, format: &str) -> Value {
    let expr = query.replace("$target", TARGET);
    json!([{
        "refId": "A", "datasource": datasource(), "expr": expr, "legendFormat": "", "instant": true, "range": false, "format": format,
    }])
}

fn number((title, description, limits, page, query): &Stat, id: usize, x: usize, y: usize) -> Value {
    let day = 86_400;
    let (unit, steps) = match limits {
        Limits::None => ("short", json!([step("green", None), step("red", Some(1))])),
        Limits::NoneIdeally => ("short", json!([step("green", None), step("yellow", Some(1))])),
        Limits::Days(red, yellow) => {
            ("s", json!([step("red", None), step("yellow", Some(red * day)), step("green", Some(yellow * day))]))
        }
    };
    json!({
        "id": id, "type": "stat", "title": title, "description": description, "datasource": datasource(),
        "gridPos": { "h": LOW, "w": WIDTH / WELL.len(), "x": x, "y": y },
        "links": [link(&called(page), page)],
        "fieldConfig": { "defaults": { "unit": unit, "thresholds": { "mode": "absolute", "steps": steps } }, "overrides": [] },
        "options": {
            "colorMode": "background", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "value",
            "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
        },
        "targets": now(query, "time_series"),
    })
}

fn step(colour: &str, from: Option<u32>) -> Value {
    json!({ "color": colour, "value": from })
}

/// The table of who waits. The party is coloured, and each reason links to the page of reasons.
fn table(id: usize, y: usize) -> Value {
    let (title, description, page, query) = TABLE;
    let party = |colour: &str, index: u32| json!({ "color": colour, "index": index });
    let colours = json!({ "platform": party("red", 0), "project": party("orange", 1), "tenant": party("yellow", 2), "nobody": party("green", 3) });
    json!({
        "id": id, "type": "table", "title": title, "description": description, "datasource": datasource(),
        "gridPos": { "h": HEIGHT, "w": WIDTH, "x": 0, "y": y },
        "links": [link(&called(page), page)],
        "fieldConfig": { "defaults": { "unit": "short" }, "overrides": [
            {
                "matcher": { "id": "byName", "options": "Who has to act" },
                "properties": [
                    { "id": "mappings", "value": [{ "type": "value", "options": colours }] },
                    { "id": "custom.cellOptions", "value": { "type": "color-background" } },
                ],
            },
            {
                "matcher": { "id": "byName", "options": "Reason" },
                "properties": [{ "id": "links", "value": [link("Reasons: meaning, effect and what to do", "reasons.md")] }],
            },
        ] },
        "options": { "showHeader": true, "sortBy": [{ "displayName": "Objects", "desc": true }] },
        "transformations": [{ "id": "organize", "options": {
            "excludeByName": { "Time": true },
            "indexByName": { "waits_for": 0, "reason": 1, "city": 2, "Value": 3 },
            "renameByName": { "waits_for": "Who has to act", "reason": "Reason", "city": "City", "Value": "Objects" },
        } }],
        "targets": now(query, "table"),
    })
}

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "datasource": datasource(), "query": query, "refresh": 2,
        "includeAll": true, "multi": true, "current": { "text": "All", "value": "$__all" },
    })
}

fn series((title, description, unit, pages, queries): &Panel, id: usize, x: usize, y: usize) -> Value {
    let names = ('A'..='Z').map(String::from);
    let targets: Vec<Value> = queries
        .iter()
        .zip(names)
        .map(|((query, legend), name)| {
            let expr = query.replace("$target", TARGET);
            json!({ "refId": name, "datasource": datasource(), "expr": expr, "legendFormat": legend })
        })
        .collect();
    json!({
        "id": id, "type": "timeseries", "title": title, "description": description, "datasource": datasource(),
        "gridPos": { "h": HEIGHT, "w": WIDTH / BESIDE, "x": x, "y": y },
        "links": pages.iter().map(|page| link(&called(page), page)).collect::<Vec<_>>(),
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": {
            "legend": { "displayMode": "list", "placement": "bottom" },
            "tooltip": { "mode": "multi", "sort": "desc" },
        },
        "targets": targets,
    })
}
