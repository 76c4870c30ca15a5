use super::*;

#[test]
fn reason_is_parsed_back_and_foreign_one_has_no_rank() {
    for reason in Reason::ALL {
        assert_eq!(&Reason::from(reason.as_str()), reason);
        let known_to_users = reason.rank() > 0 || !matches!(reason.class(), Class::Network | Class::Source);
        assert!(known_to_users, "{reason} would never be the one that is shown");
    }
    let odd = Reason::from("SomethingElse");
    assert_eq!((odd.as_str(), odd.rank(), odd.class(), odd.travels()), ("SomethingElse", 0, Class::Foreign, false));
}

#[test]
fn reasons_page_lists_every_reason_with_its_rank() {
    let page = include_str!("../../docs/reasons.md");
    for reason in Reason::ALL {
        let row = match reason.class() {
            Class::Success | Class::Event => format!("| `{reason}` | "),
            _ => format!("| `{reason}` | {} | ", reason.rank()),
        };
        assert!(page.contains(&row), "docs/reasons.md has no row that begins with {row:?}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Reason::ALL.len(), "docs/reasons.md lists a reason that nobody gives");
}

/// Alerts called the federation's operators for a Secret that a tenant had not created.
#[test]
fn reasons_page_names_the_party_of_each_reason() {
    let page = include_str!("../../docs/reasons.md");
    for reason in Reason::ALL.iter().filter(|reason| !matches!(reason.class(), Class::Success | Class::Event)) {
        let start = format!("| `{reason}` | {} | ", reason.rank());
        let row = page.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
        // "platform, or the tenant" counts as the platform.
        let is_tenants = row.starts_with("tenant | ");
        assert_eq!(reason.waits_for() == WaitsFor::Tenant, is_tenants, "{reason}: {row}");
    }
}

#[test]
fn delivery_reasons_outrank_data_and_progress() {
    let worst = |class| Reason::ALL.iter().filter(|r| r.class() == class).map(Reason::rank).max().unwrap();
    assert!(worst(Class::Delivery) > worst(Class::Data) && worst(Class::Data) > worst(Class::Progress));
    assert!(Reason::ALL.iter().filter(|r| r.class() == Class::Event).all(|r| r.rank() == 0));
}
