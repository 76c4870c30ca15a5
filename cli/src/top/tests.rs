//! Screens and keys.

use compute_operator::plan::management::waiting::Answer;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::{Timestamp, ToSpan};
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    style::{Color, Modifier},
};
use serde_json::{Value, json};

use super::{
    app::{App, Ask, CauseKey, Fresh, Read, Source, View},
    draw::draw,
    rates::Counters,
};
use crate::{map::Map, seen::Seen, trace::parts_tests::hub};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn later(seconds: i64) -> Timestamp {
    now() + seconds.seconds()
}

fn cause(party: &str, reason: &str, city: Option<&str>, objects: usize) -> Value {
    json!({
        "waitsFor": party, "reason": reason, "city": city, "clusters": city.map(|city| format!("cell-{city}")).into_iter().collect::<Vec<_>>(),
        "projects": 1, "objects": objects, "oldest": "2026-01-01T11:53:50Z",
    })
}

fn object(name: &str, city: &str, reason: &str, message: &str) -> Value {
    json!({
        "project": "shop", "namespace": "demo", "kind": "WorkloadDeployment", "name": name, "city": city,
        "clusters": [format!("cell-{city}")], "reason": reason, "waitsFor": "platform", "since": "2026-01-01T11:53:50Z",
        "message": message,
    })
}

fn answer(causes: &[Value], objects: &[Value]) -> Answer {
    serde_json::from_value(json!({
        "time": now(), "projects": 212, "deployments": 2041, "causes": causes, "objects": objects,
    }))
    .unwrap()
}

fn three() -> Answer {
    answer(
        &[
            cause("platform", "NotScheduled", Some("ord"), 14),
            cause("tenant", "SourceNotFound", Some("dfw"), 2),
            cause("nobody", "Pending", None, 1),
        ],
        &[],
    )
}

fn done(fresh: Fresh) -> Read {
    Read::Done(now(), Box::new(fresh))
}

/// A view that has read everything.
fn app() -> App {
    let mut app = App::default();
    app.on_read(done(Fresh::Waiting(three())));
    app.on_read(done(Fresh::Map(Map::of(&hub()))));
    app.on_read(done(Fresh::Counters(Counters::default())));
    let text = "controller_runtime_reconcile_total 120\ncompute_writes_total 5\nworkqueue_depth 2\n";
    app.on_read(Read::Done(later(10), Box::new(Fresh::Counters(Counters::read(text)))));
    app
}

fn press(app: &mut App, codes: &[KeyCode]) -> Vec<Option<Ask>> {
    codes.iter().map(|code| app.on_key(KeyEvent::new(*code, KeyModifiers::NONE))).collect()
}

fn buffer(app: &App, now: Timestamp, (width, height): (u16, u16), colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, now, colours)).unwrap();
    terminal.backend().buffer().clone()
}

/// Returns the screen as text, without spaces at the ends of its lines.
fn screen(app: &App, now: Timestamp, size: (u16, u16)) -> String {
    let buffer = buffer(app, now, size, false);
    let line = |row: u16| {
        let cells: String = (0..size.0).map(|column| buffer[(column, row)].symbol()).collect();
        cells.trim_end().to_owned() + "\n"
    };
    (0..size.1).map(line).collect()
}

/// Compares a screen with its file. `WRITE_GOLDEN=1 cargo test --package kubectl-compute top` writes the files.
fn is_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/top-{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{path}: run with WRITE_GOLDEN=1, and commit what it writes");
}

fn opened() -> App {
    let mut app = app();
    press(&mut app, &[KeyCode::Enter]);
    let key = app.open().unwrap().clone();
    let message = "Karmada: 0/2 clusters are available: 1 cluster(s) had untolerated taint {maintenance:NoSchedule}";
    let objects = [
        object("hello-edge-ord", "ord", "NotScheduled", message),
        object("probe-edge-ord", "ord", "NotScheduled", "the same"),
        object("other-edge-lhr", "lhr", "NotScheduled", "of another city"),
    ];
    app.on_read(done(Fresh::Objects(key, answer(&[], &objects))));
    app
}

#[test]
fn screens_are_those_of_the_files() {
    is_golden("causes-100x30", &screen(&app(), now(), (100, 30)));
    is_golden("causes-40x10", &screen(&app(), now(), (40, 10)));
    is_golden("objects-100x20", &screen(&opened(), now(), (100, 20)));
    is_golden("objects-40x10", &screen(&opened(), now(), (40, 10)));
    let mut map = app();
    press(&mut map, &[KeyCode::Char('m')]);
    is_golden("map-100x20", &screen(&map, now(), (100, 20)));
    is_golden("map-40x10", &screen(&map, now(), (40, 10)));
    press(&mut map, &[KeyCode::Char('?')]);
    is_golden("help-40x10", &screen(&map, now(), (40, 10)));
    is_golden("start-60x12", &screen(&App::default(), now(), (60, 12)));
}

#[test]
fn failed_and_slow_reads_are_shown_with_the_age_of_the_last_answer() {
    let mut failing = app();
    failing.on_read(Read::Began(Source::Waiting, later(5)));
    failing.on_read(Read::Failed(Source::Waiting, "no answer in 15 s".to_owned()));
    failing.on_read(Read::Began(Source::Map, later(10)));
    assert!(!screen(&failing, later(12), (80, 12)).contains("map: no answer"), "two seconds are not slow");
    let text = screen(&failing, later(22), (80, 12));
    assert!(text.contains("? waiting: no answer in 15 s, last seen 22s ago"), "{text}");
    assert!(text.contains("? map: no answer for 12s, last seen 22s ago"), "{text}");
    assert!(text.contains("▶ ") && text.contains("NotScheduled"), "the last answer is still shown: {text}");
    failing.on_read(done(Fresh::Waiting(three())));
    failing.on_read(done(Fresh::Map(Map::of(&hub()))));
    let text = screen(&failing, later(22), (80, 12));
    assert!(!text.contains("last seen"), "{text}");

    let mut never = App::default();
    never.on_read(Read::Failed(Source::Map, "the hub is not known: give --hub-context".to_owned()));
    let text = screen(&never, now(), (60, 12));
    assert!(text.contains("· waiting: reading") && text.contains("? map: the hub is not known: give"), "{text}");
    never.on_read(Read::Failed(Source::Rates, "the manager refuses: forbidden".to_owned()));
    assert!(screen(&never, now(), (60, 20)).contains("? rates: the manager refuses"), "rates are optional");

    let mut partial = app();
    let mut facts = hub();
    facts.bindings = Seen::Denied("bindings are forbidden".to_owned());
    partial.on_read(done(Fresh::Map(Map::of(&facts))));
    press(&mut partial, &[KeyCode::Char('m')]);
    let text = screen(&partial, now(), (80, 24));
    assert!(text.contains("? bindings: not visible with your rights: bindings are forbidden"), "{text}");
}

#[test]
fn keys_do_what_the_help_says() {
    use KeyCode::{Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Up};
    let causes = |keys: &[KeyCode], selected: usize| {
        let mut app = app();
        assert!(press(&mut app, keys).iter().all(Option::is_none), "{keys:?}");
        assert_eq!((app.selected(), &app.view), (selected, &View::Causes), "{keys:?}");
    };
    causes(&[Down], 1);
    causes(&[Char('j'), Down, Down, Down], 2);
    causes(&[Up, Char('k')], 0);
    causes(&[PageDown, Up], 1);
    causes(&[End, PageUp], 0);
    causes(&[End, Home, Char('G'), Char('g')], 0);
    causes(&[Enter, Esc], 0);
    causes(&[Enter, Backspace, Down], 1);
    causes(&[Enter, Left], 0);
    causes(&[Char('m'), Down, Right, Char('m')], 0);
    causes(&[Char('m'), Esc], 0);
    causes(&[Char('?'), Down, Enter, Char('m'), Esc], 0);
    causes(&[Char('?'), Char('?'), Down, Left, Char('x')], 1);

    for keys in [&[Char('q')][..], &[Esc], &[Enter, Char('q')], &[Char('m'), Char('q')], &[Char('?'), Char('q')]] {
        assert_eq!(press(&mut app(), keys).last(), Some(&Some(Ask::Quit)), "{keys:?}");
    }
    assert_eq!(press(&mut app(), &[Char('r')]), [Some(Ask::Refresh)]);
    for start in [&[][..], &[Enter], &[Char('m')], &[Char('?')]] {
        let mut app = app();
        press(&mut app, start);
        let ctrl = |c| KeyEvent::new(Char(c), KeyModifiers::CONTROL);
        assert_eq!((app.on_key(ctrl('r')), app.on_key(ctrl('c'))), (None, Some(Ask::Quit)));
    }

    let mut map = app();
    press(&mut map, &[Char('m'), Right, Right, Right, Right]);
    assert_eq!(map.view, View::Map { row: 0, column: 1 }, "of two clusters, the last one is first");
    press(&mut map, &[Left, Left, End]);
    assert_eq!(map.view, View::Map { row: 6, column: 0 });
}

#[test]
fn enter_asks_for_the_objects_of_the_selected_cause_and_only_they_are_shown() {
    let mut app = app();
    assert_eq!(app.open(), None);
    press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
    let key = app.open().unwrap().clone();
    assert_eq!((&*key.reason, key.city.as_deref()), ("SourceNotFound", Some("dfw")));
    let other = CauseKey::of(&three().causes[0]);
    let objects = [object("hello-edge-ord", "ord", "NotScheduled", "x")];
    app.on_read(done(Fresh::Objects(other, answer(&[], &objects))));
    let View::Objects(drill) = &app.view else { panic!("{:?}", app.view) };
    assert_eq!(drill.feed.found(), None, "an answer for the cause before is too late");

    let View::Objects(drill) = opened().view else { panic!("it is not open") };
    let names: Vec<_> = drill.feed.found().unwrap().iter().map(|object| &*object.place.name).collect();
    assert_eq!(names, ["hello-edge-ord", "probe-edge-ord"], "that of lhr is another cause");
    let mut empty = App::default();
    press(&mut empty, &[KeyCode::Enter, KeyCode::Down, KeyCode::End]);
    assert_eq!(empty, App::default(), "without causes, nothing opens");
}

#[test]
fn selection_stays_on_its_cause_and_object() {
    let mut app = app();
    press(&mut app, &[KeyCode::Down]);
    let mut next = three();
    next.causes.rotate_left(1);
    app.on_read(done(Fresh::Waiting(next.clone())));
    assert_eq!((app.selected(), &*app.causes()[0].reason), (0, "SourceNotFound"));
    press(&mut app, &[KeyCode::End]);
    next.causes.truncate(1);
    app.on_read(done(Fresh::Waiting(next)));
    assert_eq!(app.selected(), 0, "the selected one is no more");

    let mut app = opened();
    press(&mut app, &[KeyCode::Down]);
    let key = app.open().unwrap().clone();
    let objects = [object("probe-edge-ord", "ord", "NotScheduled", "the same")];
    app.on_read(done(Fresh::Objects(key, answer(&[], &objects))));
    let View::Objects(drill) = &app.view else { panic!("{:?}", app.view) };
    assert_eq!(drill.selected, 0);
}

#[test]
fn rates_need_two_reads_of_one_leader() {
    let counters = |text: &str, at| Read::Done(later(at), Box::new(Fresh::Counters(Counters::read(text))));
    let mut app = App::default();
    app.on_read(counters("compute_writes_total 10", 0));
    assert_eq!(app.rates, None);
    app.on_read(counters("compute_writes_total 30", 10));
    assert!((app.rates.unwrap().writes - 2.0).abs() < 1e-9);
    app.on_read(counters("compute_writes_total 3", 20));
    assert_eq!(app.rates, None, "another leader starts with new counters");
    app.on_read(counters("compute_writes_total 4", 30));
    app.on_read(Read::Failed(Source::Rates, "no answer".to_owned()));
    assert_eq!(app.rates, None, "a rate of before is none of now");
}

#[test]
fn screen_of_any_size_holds_extremes() {
    let long = "x".repeat(253);
    let wide = "日本語\u{1b}[31m\n".repeat(50);
    let many: Vec<Value> = (0..10_000).map(|n| cause("platform", &format!("Reason{n}"), Some("ord"), 1)).collect();
    let mut crowd = hub();
    if let (Seen::Found(clusters), Seen::Found(copies)) = (&mut crowd.clusters, &mut crowd.copies) {
        let facts = clusters["cell-ord"].clone();
        clusters.extend((0..40).map(|n| (format!("{long}-{n}"), facts.clone())));
        let copy = copies[0].clone();
        copies.extend((0..30).map(|n| crate::hub::Copy { city: format!("c{n}-{long}"), ..copy.clone() }));
    }
    let mut apps = vec![App::default(), app(), opened()];
    for (causes, facts) in [(vec![], hub()), (many, crowd.clone()), (vec![cause(&long, &wide, Some(&long), 1)], crowd)]
    {
        let mut app = app();
        app.on_read(done(Fresh::Waiting(answer(&causes, &[]))));
        app.on_read(done(Fresh::Map(Map::of(&facts))));
        app.on_read(Read::Failed(Source::Map, wide.clone()));
        let mut map = app.clone();
        press(&mut map, &[KeyCode::Char('m'), KeyCode::End, KeyCode::Right]);
        press(&mut app, &[KeyCode::End]);
        let mut open = app.clone();
        press(&mut open, &[KeyCode::Enter]);
        if let Some(key) = open.open().cloned() {
            let objects: Vec<Value> = (0..20).map(|_| object(&long, "x", "x", &wide)).collect();
            let mut answer = answer(&[], &objects);
            for object in &mut answer.objects {
                (object.reason, object.waits_for) = (key.reason.clone(), "platform".to_owned());
                (object.city, object.clusters) = (key.city.clone(), vec!["cell-ord".to_owned()]);
            }
            open.on_read(done(Fresh::Objects(key, answer)));
        }
        apps.extend([app, map, open]);
    }
    for app in &mut apps {
        for size in [(1, 1), (10, 3), (39, 10), (40, 9), (40, 10), (41, 11), (57, 19), (300, 60)] {
            let text = screen(app, later(100), size);
            assert!(text.lines().all(|line| !line.contains('\u{1b}')), "{size:?}: {text}");
            let is_large = size.0 >= 40 && size.1 >= 10;
            let last = text.lines().last().unwrap();
            assert_eq!(last.contains("select") || last.contains("move"), is_large, "{size:?}: {text}");
        }
    }
    let text = screen(&apps[6], now(), (100, 30));
    assert!(text.contains("▶ platform  Reason9999"), "the last of 10,000 is selected and shown: {text}");
    assert!(text.contains("10000 objects wait: platform 10000"), "{text}");
    assert!(screen(&apps[3], now(), (80, 24)).contains("Nothing waits."));
}

#[test]
fn colours_are_left_out_on_demand_and_the_selection_is_still_seen() {
    let plain = buffer(&app(), now(), (100, 30), false);
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let reversed = plain.content.iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED)).count();
    assert!(reversed > 50, "{reversed}");
    let coloured = buffer(&app(), now(), (100, 30), true);
    for colour in [Color::Red, Color::Yellow, Color::Green] {
        assert!(coloured.content.iter().any(|cell| cell.fg == colour), "{colour:?}");
    }
}
