//! The manager's Grafana dashboard, generated from one table.

mod rows;

use serde_json::{Value, json};

use self::rows::{Panel, ROWS};

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

/// Returns the dashboard in Grafana's import format.
pub fn text() -> String {
    let mut panels = Vec::new();
    let mut at = 0;
    for (title, row) in ROWS {
        panels.push(json!({
            "id": panels.len() + 1, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": { "h": 1, "w": WIDTH, "x": 0, "y": at },
        }));
        at += 1;
        for (nth, panel) in row.iter().enumerate() {
            let (x, y) = (nth % BESIDE * (WIDTH / BESIDE), at + nth / BESIDE * HEIGHT);
            panels.push(series(panel, panels.len() + 1, x, y));
        }
        at += row.len().div_ceil(BESIDE) * HEIGHT;
    }
    let board = json!({
        "uid": "compute-manager", "title": "Compute / Manager", "tags": ["compute"], "schemaVersion": 39,
        "editable": false, "graphTooltip": 1, "refresh": "30s", "timezone": "utc",
        "time": { "from": "now-6h", "to": "now" },
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

fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name, "type": "query", "datasource": datasource(), "query": query, "refresh": 2,
        "includeAll": true, "multi": true, "current": { "text": "All", "value": "$__all" },
    })
}

fn series((title, description, unit, queries): &Panel, id: usize, x: usize, y: usize) -> Value {
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
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": {
            "legend": { "displayMode": "list", "placement": "bottom" },
            "tooltip": { "mode": "multi", "sort": "desc" },
        },
        "targets": targets,
    })
}
