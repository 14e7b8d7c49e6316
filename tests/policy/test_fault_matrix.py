"""
The fault matrix: which test shows what each fault leads to, as far as the pure policy can show it.

What comes in: the faults, by number, as the design's matrix counts them. What goes out: `SHOWN`, which documentation
may be made from, and the promise that each test named here exists.

The law: a fault stands in exactly one of three tables: the policy's, the acting half's (calls, signals, journal, lock),
the exporter's (what is measured, and named). A row that is shown by the policy and that needs an actuator, too, says
so in the acting half's part of `BOTH`.
"""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SHOWN: dict[int, tuple[str, tuple[str, ...]]] = {
    3: ("the end of an action is unknown", ("test_outcomes::test_while_the_end_is_unknown_nothing_follows",)),
    4: ("a PodDisruptionBudget says no", ("test_outcomes::test_blocked_waits_longer_each_time",)),
    5: (
        "a PodDisruptionBudget says no for hours",
        ("test_outcomes::test_blocked_waits_longer_each_time", "test_outcomes::test_the_longest_wait_is_bounded"),
    ),
    10: ("a right is missing", ("test_breakers::test_an_open_breaker_holds_everything_until_it_is_closed",)),
    11: ("an admission policy forbids", ("test_breakers::test_an_open_breaker_holds_everything_until_it_is_closed",)),
    15: ("an answer is late", ("test_outcomes::test_while_the_end_is_unknown_nothing_follows",)),
    17: (
        "a pod is made anew under its name",
        (
            "test_outcomes::test_the_same_name_with_another_uid_is_another_pod",
            "test_doubt::test_the_same_name_with_another_uid_is_another_subject",
            "test_doubt::test_two_pods_of_one_name_are_two",
        ),
    ),
    18: ("the API server's watch is silent", ("test_clocks::test_names_that_are_remembered_only_hold_back",)),
    20: ("an old container id is known", ("test_reasons::test_one_fact_holds_the_action_back",)),
    22: (
        "the wall clock jumps",
        (
            "test_clocks::test_the_wall_clock_is_nobody_s_evidence",
            "test_budgets::test_sleep_passes_windows_and_the_clock_on_the_wall_does_not",
        ),
    ),
    23: (
        "the machine was suspended",
        ("test_clocks::test_a_machine_that_slept_begins_anew", "test_stories::10-a-suspended-machine"),
    ),
    24: ("the daemon stalled", ("test_clocks::test_a_stall_of_ours_begins_anew_and_bursts_nothing",)),
    26: (
        "memory is N/A",
        (
            "test_doubt::test_unknown_for_ever_is_never_acted_on_and_always_told",
            "test_doubt::test_a_neighbour_with_unknown_readings_shields_nobody",
            "test_doubt::test_one_flaky_reading_now_and_then_delays_and_does_not_spare",
            "test_stories::17-readings-that-are-missing",
        ),
    ),
    28: ("one GPU of several fails", ("test_doubt::test_another_gpu_that_fails_is_another_gpu",)),
    29: ("a GPU is lost", ("test_breakers::test_devices_that_are_others_than_before",)),
    30: (
        "driver or devices change",
        ("test_breakers::test_devices_that_are_others_than_before", "test_stories::11-a-driver-upgrade"),
    ),
    31: (
        "the lists exceed the device's use",
        (
            "test_doubt::test_a_forking_neighbour_shields_nobody_who_is_far_over",
            "test_doubt::test_doubt_that_could_change_the_excess_holds_back",
            "test_doubt::test_an_unknown_neighbour_does_not_hide_that_the_lists_are_wrong",
        ),
    ),
    33: (
        "a hidden process with 30 GiB",
        (
            "test_doubt::test_thirty_gib_that_nobody_explains_shield_nobody",
            "test_doubt::test_a_hidden_process_is_never_the_victim",
        ),
    ),
    34: (
        "an MPS server holds the memory",
        ("test_reasons::test_one_fact_holds_the_action_back", "test_stories::04-mps"),
    ),
    36: ("the kubelet does not answer", ("test_reasons::test_one_fact_holds_the_action_back",)),
    38: (
        "a container restarts in the middle of a grace",
        (
            "test_doubt::test_a_restart_in_the_middle_of_a_grace_is_another_subject",
            "test_budgets::test_a_strike_is_the_workload_s",
            "test_stories::16-a-container-that-restarts",
        ),
    ),
    39: (
        "memory is freed a second before the end",
        (
            "test_doubt::test_memory_that_is_freed_in_time",
            "test_doubt::test_memory_that_is_freed_for_one_round_is_not_freed",
            "test_stories::03-memory-that-is-freed-in-time",
        ),
    ),
    40: ("a use oscillates around its limit", ("test_doubt::test_oscillating_around_the_limit_is_never_due",)),
    43: ("a fork storm", ("test_doubt::test_memory_that_moves_among_its_processes_is_still_its_own",)),
    45: ("memory stays after the action", ("test_outcomes::test_stuck_stops_the_node",)),
    47: ("a finalizer holds the pod", ("test_outcomes::test_stuck_stops_the_node",)),
    52: (
        "the daemon restarts in a loop",
        ("test_metamorphic::test_nothing_hastens_the_first_action", "test_stories::13-our-own-restart"),
    ),
    55: (
        "all limits are lowered at once",
        (
            "test_breakers::test_limits_that_were_all_lowered_at_once_hit_nobody",
            "test_modes::test_a_reload_of_other_rules_voids_the_evidence",
        ),
    ),
    56: (
        "the config cannot be used",
        ("test_modes::test_a_config_that_cannot_be_used_observes", "test_stories::09-a-config-that-cannot-be-used"),
    ),
    57: (
        "a limit is edited in the middle of a grace",
        (
            "test_doubt::test_a_limit_that_is_raised_or_lowered_in_the_middle_of_a_grace",
            "test_doubt::test_a_limit_that_the_excess_seen_so_far_did_not_exceed_voids_it",
            "test_doubt::test_toggling_between_two_limits_that_it_exceeds_gains_nothing",
        ),
    ),
    58: (
        "an exemption or a withdrawn consent in the last round",
        (
            "test_protection::test_a_protection_that_comes_in_the_last_round_protects",
            "test_protection::test_consent_that_is_withdrawn_in_the_last_round_holds",
        ),
    ),
    59: (
        "the kill switch while an action is in flight",
        ("test_modes::test_off_forgets_the_evidence_and_keeps_what_was_spent", "test_stories::15-the-stop-file"),
    ),
    61: ("an open breaker and a restart", ("test_breakers::test_breakers_outlive_the_daemon",)),
    62: (
        "every pod is over at once",
        ("test_breakers::test_half_of_all_and_at_least_three", "test_stories::12-half-the-node-is-over"),
    ),
    63: ("a mistake of units", ("test_breakers::test_limits_that_were_all_lowered_at_once_hit_nobody",)),
    64: (
        "a job is made anew for ever",
        (
            "test_budgets::test_a_job_that_comes_back_for_ever_costs_three_actions_a_day",
            "test_stories::06-a-job-that-is-made-anew-for-ever",
        ),
    ),
    65: ("somebody else deletes the pod", ("test_reasons::test_one_fact_holds_the_action_back",)),
    66: ("the victim has finished", ("test_protection::test_only_running_pods",)),
    68: ("readings go backwards", ("test_clocks::test_the_first_snapshot_twice_is_one",)),
    71: ("the PID domain is not proven", ("test_breakers::test_an_open_breaker_holds_everything_until_it_is_closed",)),
    73: (
        "enforcing would hit half of the node",
        (
            "test_preview::test_it_says_that_the_breaker_would_open",
            "test_breakers::test_blast_counts_any_excess_when_acting_begins",
        ),
    ),
}
"""Fault -> what it is, and the tests (`file::test`, or `test_stories::story`) that show what follows."""

BOTH = {3, 4, 5, 10, 11, 15, 17, 18, 20, 45, 47, 52, 58, 59, 61, 65, 66}
"""Faults of `SHOWN` whose other half is the acting half's: the call, the last look, the journal."""

ACTING = {1, 2, 6, 7, 8, 9, 12, 13, 14, 16, 19, 21, 41, 42, 44, 46, 48, 49, 50, 51, 53, 54, 60, 69, 74}
"""Faults that only the acting half can meet."""

EXPORTER = {25, 27, 32, 35, 37, 67, 70, 72}
"""Faults that end before the policy: what they leave is an unknown reading (26), a missing GPU (28), or nothing."""


def test_each_fault_stands_in_one_table() -> None:
    """All 74 faults, none twice, none forgotten."""
    assert sorted([*SHOWN, *ACTING, *EXPORTER]) == list(range(1, 75))
    assert SHOWN.keys() >= BOTH


@pytest.mark.parametrize("row", SHOWN, ids=str)
def test_each_test_exists(row: int) -> None:
    """A test that is renamed or lost is missed here; each says in its docstring what it promises."""
    _, tests = SHOWN[row]
    assert tests
    for one in tests:
        file, name = one.split("::")
        if file == "test_stories" and not name.startswith("test_"):
            assert (HERE / "stories" / f"{name}.yaml").is_file(), one
            continue
        functions = {
            node.name: ast.get_docstring(node)
            for node in ast.parse((HERE / f"{file}.py").read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert functions.get(name), one
