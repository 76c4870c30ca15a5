use super::*;

#[test]
fn every_reason_is_read_back_and_others_are_passed_on_without_a_rank() {
    for reason in Reason::ALL {
        assert_eq!(&Reason::from(reason.as_str()), reason);
        let known_to_users = reason.rank() > 0 || !matches!(reason.class(), Class::Network | Class::Source);
        assert!(known_to_users, "{reason} would never be the one that is shown");
    }
    let odd = Reason::from("SomethingElse");
    assert_eq!((odd.as_str(), odd.rank(), odd.class(), odd.travels()), ("SomethingElse", 0, Class::Foreign, false));
}

#[test]
fn the_page_of_reasons_lists_exactly_these_with_their_ranks() {
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

/// Found by reading: whoever runs the federation was called for a Secret that a tenant had not made.
#[test]
fn the_page_of_reasons_says_whose_each_is() {
    let page = include_str!("../../docs/reasons.md");
    for reason in Reason::ALL.iter().filter(|reason| !matches!(reason.class(), Class::Success | Class::Event)) {
        let start = format!("| `{reason}` | {} | ", reason.rank());
        let row = page.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
        // "platform, or the tenant" calls for the platform.
        let is_tenants = row.starts_with("tenant | ");
        assert_eq!(reason.waits_for() == WaitsFor::Tenant, is_tenants, "{reason}: {row}");
    }
}

#[test]
fn what_blocks_delivery_outranks_what_merely_takes_its_time() {
    let worst = |class| Reason::ALL.iter().filter(|r| r.class() == class).map(Reason::rank).max().unwrap();
    assert!(worst(Class::Delivery) > worst(Class::Data) && worst(Class::Data) > worst(Class::Progress));
    assert!(Reason::ALL.iter().filter(|r| r.class() == Class::Event).all(|r| r.rank() == 0));
}
