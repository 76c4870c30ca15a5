//! `map`: cities and cells, with their deployments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write,
};

use compute_operator::{api::names::CityCode, plan::management::observed::cluster::ClusterFacts};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    exit::Exit,
    flags,
    hub::HubFacts,
    output::Output,
    planes::Planes,
    screen::{Mark, Screen},
    trace::cluster::drain,
};

/// Number of deployments and of their Instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Number of deployments.
    pub deployments: usize,
    /// Number of ready Instances.
    pub ready: i64,
    /// Number of wanted Instances.
    pub desired: i64,
    /// Number of deployments that could not be applied.
    pub failed: usize,
}

/// Cities and cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Map {
    /// Time of the reads.
    pub time: Timestamp,
    /// Member clusters of the hub.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// Number of ConfigMaps and Secrets that go to each cluster.
    pub data: BTreeMap<String, usize>,
    /// Cities, with the counts of all clusters.
    pub cities: BTreeMap<String, Count>,
    /// Counts of each city on each cluster.
    pub cells: BTreeMap<String, BTreeMap<String, Count>>,
    /// Counts of each city on no cluster.
    pub unplaced: BTreeMap<String, Count>,
    /// What could not be seen.
    pub hidden: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(global: &flags::Global, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let planes = Planes::of(global).await?;
    if planes.hub.is_none() {
        return Err((Exit::Usage, "the map is read from the hub: give --hub-context".to_owned()));
    }
    let map = Map::of(&HubFacts::read(&planes, Timestamp::now()).await);
    output.print(out, &map, |screen| map.text(screen))?;
    Ok(map.exit())
}

impl Count {
    fn add(&mut self, ready: i64, desired: i64, failed: bool) {
        self.deployments += 1;
        self.ready += ready;
        self.desired += desired;
        self.failed += usize::from(failed);
    }

    fn text(self) -> String {
        let mark = match (self.failed, self.ready >= self.desired) {
            (0, true) => Mark::Well,
            (0, false) => Mark::Later,
            _ => Mark::Broken,
        };
        format!("{} {} ({}/{})", mark.sign(), self.deployments, self.ready, self.desired)
    }
}

impl Map {
    /// Counts what the hub shows.
    pub fn of(facts: &HubFacts) -> Self {
        let clusters = facts.clusters.found().cloned().unwrap_or_default();
        let mut map = Self {
            time: facts.now,
            data: clusters.keys().map(|name| (name.clone(), facts.data_on(name))).collect(),
            clusters,
            cities: BTreeMap::new(),
            cells: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            hidden: facts.hidden(),
        };
        for (copy, bound) in facts.deployments() {
            let city = CityCode::parse(&copy.city).map_or_else(|_| copy.city.clone(), |city| city.as_str().to_owned());
            let on = bound.map(|bound| &bound.clusters).filter(|clusters| !clusters.is_empty());
            for (cluster, on) in on.into_iter().flatten() {
                let (ready, desired) = (on.ready.unwrap_or_default(), on.desired.unwrap_or(copy.desired));
                let cell = map.cells.entry(city.clone()).or_default().entry(cluster.clone()).or_default();
                cell.add(ready, desired, on.trouble.is_some());
            }
            if on.is_none() {
                map.unplaced.entry(city.clone()).or_default().add(
                    0,
                    copy.desired,
                    bound.is_some_and(|bound| bound.unscheduled.is_some()),
                );
            }
            let failed = bound.is_some_and(|bound| {
                bound.unscheduled.is_some() || bound.clusters.values().any(|on| on.trouble.is_some())
            });
            map.cities.entry(city).or_default().add(copy.ready, copy.desired, failed);
        }
        for city in map.clusters.values().filter_map(|facts| facts.city.as_ref()) {
            map.cities.entry(city.as_str().to_owned()).or_default();
        }
        map
    }

    /// Returns the exit code.
    pub fn exit(&self) -> Exit {
        let failed = self.cities.values().any(|count| count.failed > 0);
        let closed = self.clusters.values().any(|facts| !facts.dead && facts.is_able().is_err());
        if failed || closed {
            Exit::Platform
        } else if !self.hidden.is_empty() {
            Exit::CouldNotAsk
        } else if self.cities.values().any(|count| count.ready < count.desired) {
            Exit::InProgress
        } else {
            Exit::Well
        }
    }

    /// Returns the rows of the table: a column for each cluster, and titles first.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let dash = || "–".to_owned();
        // A cluster that is no longer a member still has what is bound to it.
        let bound = self.cells.values().flat_map(|row| row.keys());
        let names: BTreeSet<&String> = self.clusters.keys().chain(bound).collect();
        let row = |title: &str, total: String, of: &dyn Fn(&str) -> String, unplaced: String| {
            let cells = names.iter().map(|name| of(name));
            [title.to_owned(), total].into_iter().chain(cells).chain([unplaced]).collect::<Vec<String>>()
        };
        let fact = |name: &str, of: &dyn Fn(&ClusterFacts) -> String| {
            self.clusters.get(name).map_or_else(|| "no member".to_owned(), of)
        };
        let none = String::new;
        let mut rows = vec![row("CITY", "READY".to_owned(), &|name| name.to_owned(), "NO CLUSTER".to_owned())];
        for (city, count) in &self.cities {
            let cells = self.cells.get(city);
            let of = |name: &str| cells.and_then(|cells| cells.get(name)).map_or_else(dash, |count| count.text());
            let unplaced = self.unplaced.get(city).map_or_else(dash, |count| count.text());
            rows.push(row(city, format!("{}/{}", count.ready, count.desired), &of, unplaced));
        }
        let ready = |facts: &ClusterFacts| match (&facts.ready, &facts.obstacle) {
            (Ok(()), None) => format!("{} yes", Mark::Well.sign()),
            (Ok(()), Some(_)) => format!("{} closed", Mark::Warning.sign()),
            (Err(_), _) => format!("{} no", Mark::Broken.sign()),
        };
        let taints = |facts: &ClusterFacts| {
            if facts.taints.is_empty() {
                dash()
            } else {
                format!("{} {}", Mark::Warning.sign(), facts.taints.join(" "))
            }
        };
        let drains = |facts: &ClusterFacts| match drain(facts) {
            "no" => dash(),
            drain => format!("{} {drain}", Mark::Warning.sign()),
        };
        let label = |facts: &ClusterFacts| facts.label.clone().unwrap_or_else(dash);
        rows.push(row("its city", none(), &|name| fact(name, &label), none()));
        rows.push(row("is ready", none(), &|name| fact(name, &ready), none()));
        rows.push(row("taints", none(), &|name| fact(name, &taints), none()));
        rows.push(row("drain", none(), &|name| fact(name, &drains), none()));
        let data = |name: &str| self.data.get(name).map_or_else(dash, usize::to_string);
        rows.push(row("data copies", none(), &data, none()));
        rows
    }

    /// Returns the clusters that take nothing new, and what could not be seen, with the mark of each.
    pub fn notes(&self) -> Vec<(Mark, String)> {
        let closed = self.clusters.iter().filter_map(|(name, facts)| {
            let why = facts.is_able().err()?;
            Some((Mark::Broken, format!("{name} {why}")))
        });
        closed.chain(self.hidden.iter().map(|hidden| (Mark::Unseen, hidden.clone()))).collect()
    }

    /// Returns the text: a column for each cluster.
    pub fn text(&self, screen: Screen) -> String {
        let mut text = screen.table(&self.rows());
        for (mark, note) in self.notes() {
            let _ = writeln!(text, "{} {note}", screen.sign(mark));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parts_tests::hub;

    #[test]
    fn map_counts_the_deployments_of_each_city_on_each_cell() {
        let map = Map::of(&hub());
        let expected = "\
CITY         READY  cell-dfw   cell-ord                     NO CLUSTER
dfw          2/2    ✔ 1 (2/2)  –                            –
ord          1/6    –          ✖ 2 (1/4)                    ✖ 1 (0/2)
its city            dfw        ord
is ready            ✔ yes      ▲ closed
taints              –          ▲ maintenance=on:NoSchedule
drain               –          ▲ yes
data copies         1          0
✖ cell-ord has the taint maintenance=on:NoSchedule
";
        assert_eq!(map.text(Screen::PLAIN), expected);
        assert_eq!(map.exit(), Exit::Platform);
    }

    #[test]
    fn map_without_rights_says_what_is_hidden() {
        let mut facts = hub();
        facts.bindings = crate::seen::Seen::Denied("bindings are forbidden".to_owned());
        let text = Map::of(&facts).text(Screen::PLAIN);
        assert!(text.contains("? bindings: not visible with your rights: bindings are forbidden"), "{text}");
    }
}
