//! The scenarios, each with the tests that play it.

/// Files of tests, and the test's name in each.
pub(crate) type CoveringTests = [(&'static str, &'static str)];

const HOST: (&str, &str) = (
    "workers/tests/host/faults.rs",
    "each_fault_of_a_host_is_outlived_or_named",
);
const WATCHER: (&str, &str) = (
    "workers/tests/watcher.rs",
    "the_worlds_own_troubles_are_survived",
);
const MODEL: &str = "workflows/tests/rollout_model.rs";
const ROLLOUT: &str = "workflows/tests/rollout_stories.rs";
const WHOLE: &str = "src/lab/bench/fleet/scenarios.rs";
const PEOPLE: &str = "src/lab/bench/fleet/scenarios/people.rs";
const WINDOWS: &str = "src/lab/bench/fleet/scenarios/windows.rs";
const WMCO: &str = "src/lab/bench/fleet/scenarios/wmco.rs";
const EVICT: &str = "workers/tests/kubernetes/evict.rs";
const REAL_DRAIN: &str = "tests/real/drain.rs";
const REAL_STRESS: &str = "tests/real/stress.rs";
const REAL_HELD: &str = "tests/real/whole/held.rs";
const STRESS: &str = "workers/tests/sshd/stress.rs";
const UPLOAD: &str = "workers/tests/sshd/upload.rs";
const TALK: &str = "workers/tests/sshd/talk.rs";
const RUN: &str = "tests/run.rs";

/// Number, what happens, and who plays it.
pub(crate) const SCENARIOS: &[(u8, &str, &CoveringTests)] = &[
    (
        1,
        "port 22 accepts and resets during key exchange after a boot",
        &[HOST],
    ),
    (
        2,
        "port 22 drops silently",
        &[
            HOST,
            (
                "tests/api.rs",
                "the_machine_that_is_stuck_is_found_understood_and_mended",
            ),
        ],
    ),
    (
        3,
        "the key is refused for 4 min, then accepted",
        &[
            HOST,
            (
                "workflows/tests/machine_stories/bring_up.rs",
                "a_host_that_will_not_let_us_in",
            ),
        ],
    ),
    (
        4,
        "the key is refused for ever",
        &[("workers/tests/host.rs", "a_key_that_is_refused_says_so")],
    ),
    (
        5,
        "another host key at a used address, for a new Machine",
        &[
            (
                "workers/tests/sshd/keys.rs",
                "a_used_address_with_another_key_is_another_machines_alone",
            ),
            (
                WHOLE,
                "a_machine_that_is_made_again_under_its_name_is_another_one",
            ),
        ],
    ),
    (
        6,
        "another host key for the same Machine and boot",
        &[
            HOST,
            (
                "workers/tests/sshd/keys.rs",
                "a_changed_host_key_is_named_by_both_fingerprints_and_gets_no_login",
            ),
        ],
    ),
    (7, "three default shells", &[HOST]),
    (8, "exit 0, no output, CLIXML alone", &[HOST]),
    (9, "code page 850 and localised texts", &[HOST]),
    (
        10,
        "the connection drops, the program runs on, the retry meets it",
        &[HOST],
    ),
    (
        11,
        "a child process dies at the end of its exec",
        &[(
            WINDOWS,
            "what_dies_with_its_command_is_nothing_that_a_node_needs",
        )],
    ),
    (
        12,
        "MaxStartups",
        &[
            HOST,
            (STRESS, "a_host_at_its_limit_of_pending_logins_is_retried"),
            (
                STRESS,
                "twenty_tasks_of_one_host_share_one_connection_under_its_limits",
            ),
        ],
    ),
    (
        13,
        "half-open: the host vanishes during an exec",
        &[
            HOST,
            (
                STRESS,
                "a_half_open_connection_ends_a_command_and_an_upload",
            ),
        ],
    ),
    (
        14,
        "a shell profile prints into SFTP",
        &[HOST, (TALK, "what_comes_instead_of_sftp_is_quoted")],
    ),
    (15, "sshd does not start after a reboot", &[HOST]),
    (
        16,
        "an upload is cut",
        &[
            HOST,
            (
                UPLOAD,
                "an_upload_that_is_cut_again_and_again_ends_whole_and_is_never_half_there",
            ),
            (
                UPLOAD,
                "sshd_killed_in_the_middle_leaves_no_file_under_its_name",
            ),
        ],
    ),
    (17, "a target file is held by a running process", &[HOST]),
    (18, "the disk is full", &[HOST]),
    (19, "Defender takes an uploaded file away", &[HOST]),
    (
        20,
        "two workers upload one file at once",
        &[(UPLOAD, "two_workers_that_send_one_file_end_with_that_file")],
    ),
    (
        21,
        "a slow upload",
        &[
            HOST,
            (
                STRESS,
                "a_slow_connection_is_not_broken_and_reports_progress",
            ),
        ],
    ),
    (
        22,
        "a feature needs a reboot",
        &[
            (
                "workers/tests/host.rs",
                "a_feature_takes_one_reboot_that_is_asked_for",
            ),
            (
                "workflows/tests/machine_stories/reboots.rs",
                "a_reboot_for_something_else_goes_on",
            ),
            HOST,
        ],
    ),
    (23, "a reboot in the middle of an installation", &[HOST]),
    (
        24,
        "the host reboots by itself while it serves",
        &[(WHOLE, "a_host_that_reboots_by_itself_serves_again")],
    ),
    (25, "a reboot takes 14 min", &[HOST]),
    (26, "a reboot takes 3 s", &[HOST]),
    (27, "kubelet's first start fails with 1053", &[HOST]),
    (28, "the service runs, healthz refuses", &[HOST]),
    (29, "a service is marked for deletion", &[HOST]),
    (30, "making an HNS network kills SSH for 45 s", &[HOST]),
    (
        31,
        "the HNS service restarts, endpoints are gone",
        &[(
            WINDOWS,
            "endpoints_that_the_hns_service_lost_are_made_again_and_kube_proxy_is_restarted",
        )],
    ),
    (32, "an old configuration with a byte-order mark", &[HOST]),
    (
        33,
        "the route to the metadata service is lost",
        &[(
            WINDOWS,
            "a_route_that_a_new_network_makes_windows_forget_is_there_again",
        )],
    ),
    (
        34,
        "a certificate request in another node's name",
        &[
            (WHOLE, "a_request_in_another_nodes_name_is_never_approved"),
            (
                "tests/real/attacks.rs",
                "attacks_get_certificates_only_from_who_compares_nothing",
            ),
        ],
    ),
    (
        35,
        "a serving request with one address too many",
        &[
            (
                WHOLE,
                "a_serving_request_with_a_foreign_address_waits_and_a_right_one_passes",
            ),
            (
                "workers/src/kubernetes/csr_tests.rs",
                "names_that_the_machine_does_not_have_are_refused",
            ),
            (
                "workflows/tests/machine_stories/certificates.rs",
                "a_certificate_that_does_not_fit_yet",
            ),
        ],
    ),
    (
        36,
        "two requests of one kubelet",
        &[(WHOLE, "two_requests_of_one_kubelet_are_both_handled")],
    ),
    (
        37,
        "another approver is faster",
        &[
            (WHOLE, "another_approver_that_is_faster_does_no_harm"),
            (
                "workers/src/kubernetes/csr_tests.rs",
                "a_foreign_decision_is_kept_and_denial_wins",
            ),
        ],
    ),
    (
        38,
        "the host's clock is 10 min off",
        &[
            (
                WINDOWS,
                "a_host_whose_clock_is_off_is_named_with_the_cure_and_joins_nothing",
            ),
            HOST,
        ],
    ),
    (
        39,
        "the Node's name is not the expected one",
        &[(
            WHOLE,
            "a_node_by_another_name_than_the_expected_one_gets_no_certificate",
        )],
    ),
    (
        40,
        "an older Node of the same name",
        &[
            WATCHER,
            (
                "workers/src/kubernetes/csr_tests.rs",
                "a_first_request_for_a_node_that_exists_or_before_its_machine_is_refused",
            ),
            (
                "workers/src/kubernetes/csr_owner_tests.rs",
                "a_node_of_that_name_must_be_this_machines",
            ),
            (
                "tests/real/csr.rs",
                "a_host_does_not_become_another_node_by_saying_so",
            ),
            (
                PEOPLE,
                "a_host_that_claims_another_nodes_name_stands_beside_healthy_ones",
            ),
        ],
    ),
    (
        41,
        "the Node flaps",
        &[(WHOLE, "a_node_that_flaps_serves_once_it_is_steady")],
    ),
    (
        42,
        "Machine events repeat and run backwards",
        &[
            (
                WHOLE,
                "machine_events_that_repeat_and_run_backwards_change_nothing",
            ),
            WATCHER,
            (
                "workers/src/watcher/messages/tests.rs",
                "late_and_repeated_events_change_nothing",
            ),
        ],
    ),
    (
        43,
        "the Machine is deleted while it is configured",
        &[
            (
                WHOLE,
                "a_machine_that_is_deleted_while_it_is_configured_is_replaced",
            ),
            (
                "workflows/tests/machine_stories/bring_up.rs",
                "deleted_while_it_is_configured",
            ),
        ],
    ),
    (
        44,
        "the Machine is made again under its name",
        &[
            (
                WHOLE,
                "a_machine_that_is_made_again_under_its_name_is_another_one",
            ),
            WATCHER,
        ],
    ),
    (
        45,
        "the address comes late, then changes",
        &[
            (WHOLE, "an_address_that_comes_late_and_changes_is_followed"),
            (
                "workflows/tests/machine_stories/bring_up.rs",
                "the_address_changes_during_bring_up",
            ),
        ],
    ),
    (
        46,
        "a watch ends with 410 Gone, a Machine is deleted in the gap",
        &[
            (WHOLE, "a_watch_that_is_gone_misses_no_deletion"),
            WATCHER,
            (
                "tests/real/watcher.rs",
                "a_deletion_is_published_at_once_and_one_during_a_gap_by_the_next_list",
            ),
        ],
    ),
    (
        47,
        "a worker is killed after the work and before the answer",
        &[
            (
                RUN,
                "roles_split_over_processes_meet_on_nats_and_a_worker_that_is_killed_is_no_loss",
            ),
            (
                "tests/kill.rs",
                "killed_in_turn_dormer_brings_a_fleet_up_and_upgrades_it_one_at_a_time",
            ),
            (
                "workers/tests/nats.rs",
                "a_server_that_is_killed_costs_no_report",
            ),
        ],
    ),
    (
        48,
        "two engines at once, one of them late",
        &[(
            "tests/sim/tests/simulation.rs",
            "every_law_holds_for_every_seed",
        )],
    ),
    (
        49,
        "a budget never allows an eviction",
        &[
            (
                WHOLE,
                "a_budget_that_never_allows_is_named_and_the_other_machine_is_not_begun",
            ),
            (
                "workflows/tests/machine_stories/drain.rs",
                "a_budget_that_never_allows_an_eviction",
            ),
            (
                "workflows/tests/machine_stories/drain.rs",
                "what_a_drain_waits_for_names_the_pod_and_what_holds_it",
            ),
            (
                REAL_DRAIN,
                "a_budget_holds_its_pods_until_it_allows_one_and_force_does_not_ask",
            ),
        ],
    ),
    (
        50,
        "two budgets on one pod",
        &[
            (WHOLE, "two_budgets_on_one_pod_are_named"),
            (EVICT, "a_pod_that_nobody_can_evict_holds_no_other_up"),
            (REAL_DRAIN, "two_budgets_on_one_pod_block_it_and_no_other"),
            (
                REAL_HELD,
                "a_drain_names_what_holds_it_and_goes_on_as_people_mend_it_on_a_real_api_server",
            ),
        ],
    ),
    (
        51,
        "the node goes silent in its drain",
        &[
            (
                WHOLE,
                "a_node_that_goes_silent_in_its_drain_is_replaced_all_the_same",
            ),
            (
                REAL_STRESS,
                "the_drain_of_a_dead_node_ends_where_its_machine_is_deleted_next",
            ),
            (
                REAL_STRESS,
                "the_host_stays_so_the_pods_of_a_silent_node_are_kept",
            ),
            (
                REAL_STRESS,
                "a_silent_host_that_stays_is_drained_once_a_person_says_that_it_is_off",
            ),
            (
                EVICT,
                "the_word_that_a_host_is_off_may_be_taken_back_in_the_middle_of_a_drain",
            ),
        ],
    ),
    (
        52,
        "a pod's finalizer is never removed",
        &[
            (WHOLE, "a_pod_with_a_finalizer_is_named"),
            (
                REAL_STRESS,
                "a_pod_of_a_namespace_that_ends_is_waited_for_by_name",
            ),
            (
                "tests/real/refusals.rs",
                "a_namespace_that_ends_takes_no_eviction_and_is_named",
            ),
            (
                REAL_HELD,
                "a_drain_names_what_holds_it_and_goes_on_as_people_mend_it_on_a_real_api_server",
            ),
        ],
    ),
    (
        53,
        "a pod that ignores the cordon and comes back",
        &[
            (
                WHOLE,
                "a_pod_that_comes_back_to_a_cordoned_node_holds_no_drain",
            ),
            (
                REAL_DRAIN,
                "a_pod_that_tolerates_the_cordon_does_not_hold_a_drain",
            ),
            (
                "workers/tests/kubernetes/evict.rs",
                "a_pod_that_comes_back_during_a_drain_is_not_evicted_again",
            ),
            (REAL_DRAIN, "what_a_drain_moves_goes_and_the_rest_stays"),
        ],
    ),
    (
        54,
        "a person uncordons, or had cordoned",
        &[
            (WHOLE, "a_drain_that_a_person_uncordons_goes_on"),
            (
                "workflows/tests/machine_stories/drain.rs",
                "a_person_uncordons_in_the_middle_of_a_drain",
            ),
            (
                "workflows/tests/meanwhile.rs",
                "a_pass_during_which_the_node_was_uncordoned_does_not_end_the_drain",
            ),
            (
                "tests/real/fence.rs",
                "a_node_that_a_person_cordoned_is_not_taken",
            ),
            (
                REAL_HELD,
                "a_drain_names_what_holds_it_and_goes_on_as_people_mend_it_on_a_real_api_server",
            ),
        ],
    ),
    (
        55,
        "a volume stays attached after the drain",
        &[
            (WHOLE, "a_volume_that_stays_attached_holds_nobody_for_ever"),
            (
                REAL_STRESS,
                "a_volume_that_stays_attached_holds_no_drain_and_is_left_alone",
            ),
        ],
    ),
    (
        56,
        "the holder's worker dies between drain and delete",
        &[
            (
                "tests/kill.rs",
                "killed_in_turn_dormer_brings_a_fleet_up_and_upgrades_it_one_at_a_time",
            ),
            (MODEL, "workers_that_sleep_while_machines_are_replaced"),
        ],
    ),
    (
        57,
        "a claim runs out while an irreversible call is under way",
        &[
            (
                "workers/tests/kubernetes/sleep.rs",
                "a_sleeper_deletes_nothing",
            ),
            (
                "workers/tests/kubernetes/fence.rs",
                "a_close_that_comes_first_wins",
            ),
            (
                MODEL,
                "workers_that_sleep_and_tasks_that_are_given_up_in_place",
            ),
        ],
    ),
    (
        58,
        "the replacement never comes",
        &[
            (WHOLE, "a_replacement_that_never_comes_holds_the_rollout"),
            (ROLLOUT, "the_candidates_fail"),
        ],
    ),
    (
        59,
        "a health check deletes a Machine that is being configured",
        &[
            (ROLLOUT, "a_health_check_deletes_a_member"),
            (
                "workflows/tests/machine_stories/bring_up.rs",
                "deleted_while_it_is_configured",
            ),
        ],
    ),
    (
        60,
        "a hook that is left behind after the uninstall",
        &[(
            "src/lab/bench/fleet/scenarios/left_behind.rs",
            "machines_go_after_dormer_is_gone_in_the_middle_of_an_upgrade",
        )],
    ),
    (
        61,
        "a person cordons a node, and uncordons it hours later",
        &[
            (
                PEOPLE,
                "a_node_that_a_person_cordoned_is_left_alone_until_they_uncordon_it",
            ),
            (ROLLOUT, "what_a_person_cordoned_is_not_taken"),
        ],
    ),
    (
        62,
        "a partition of a minute while an upgrade goes on",
        &[
            (
                PEOPLE,
                "a_partition_of_a_minute_makes_nobody_be_taken_beside_the_one_that_is",
            ),
            (ROLLOUT, "a_partition_grants_nothing"),
        ],
    ),
    (
        63,
        "the Node's providerID is written in another case",
        &[(PEOPLE, "a_provider_id_in_another_case_is_the_same_machine")],
    ),
    (
        64,
        "nobody may read Nodes for a while",
        &[(PEOPLE, "a_node_that_nobody_may_read_is_not_taken_for_gone")],
    ),
    (
        65,
        "a host says that its name is that of a Node which serves",
        &[(
            PEOPLE,
            "a_host_that_claims_the_name_of_a_node_gets_no_certificate_for_it",
        )],
    ),
    (
        66,
        "the pool is pruned in the middle of an upgrade",
        &[(
            PEOPLE,
            "a_pool_that_is_pruned_in_mid_upgrade_grants_nothing_until_it_is_back",
        )],
    ),
    (
        67,
        "a host is dead for good",
        &[(
            PEOPLE,
            "a_host_that_is_dead_for_good_is_replaced_and_keeps_no_other_waiting",
        )],
    ),
    (
        68,
        "other people write labels and annotations",
        &[(
            PEOPLE,
            "what_others_write_on_nodes_and_machines_changes_nothing",
        )],
    ),
    (
        69,
        "all that other people and the network do, for days, by seed",
        &[(
            "src/lab/bench/fleet/chaos.rs",
            "never_more_nodes_are_taken_than_may_be_whatever_people_do",
        )],
    ),
    (
        70,
        "the Windows Machine Config Operator runs beside dormer",
        &[
            (
                WMCO,
                "no_host_is_touched_beside_a_wmco_and_all_serve_once_it_is_stopped",
            ),
            (
                WMCO,
                "an_upgrade_waits_while_a_wmco_configures_the_same_hosts",
            ),
            (
                "workflows/tests/machine_stories/other_operators.rs",
                "another_operator_comes_in_the_middle_of_an_upgrade",
            ),
            (
                "workers/tests/watcher.rs",
                "another_operator_is_published_with_its_pod_and_forgotten_by_a_live_list_alone",
            ),
        ],
    ),
    (
        71,
        "a health check has less patience than an upgrade in place needs",
        &[(
            "workers/tests/watcher.rs",
            "what_else_changes_the_cluster_reaches_the_rollout",
        )],
    ),
    (
        72,
        "the cluster autoscaler finds a drained node unneeded",
        &[(
            "workers/tests/kubernetes/fence.rs",
            "the_autoscaler_takes_no_node_from_under_its_token_and_a_persons_word_stays",
        )],
    ),
    (
        73,
        "the cluster is upgraded, or its workers are paused or updated",
        &[
            (
                "workers/tests/watcher.rs",
                "what_else_changes_the_cluster_reaches_the_rollout",
            ),
            (
                ROLLOUT,
                "while_something_else_changes_the_cluster_only_what_does_not_serve_is_mended",
            ),
        ],
    ),
    (
        74,
        "the control plane is older than dormer works with",
        &[(
            "workers/src/watcher/settings.rs",
            "a_control_plane_that_is_too_old_gets_no_lease_and_says_why",
        )],
    ),
    (
        75,
        "the cluster has machines of one API only, or may not read those of another",
        &[
            (
                "workers/tests/watcher/sources.rs",
                "without_openshift_the_machines_of_cluster_api_are_found_in_either_version",
            ),
            (
                "workers/tests/watcher/sources.rs",
                "a_source_that_is_forbidden_is_named_stops_no_other_and_ends_no_run",
            ),
        ],
    ),
    (
        76,
        "two APIs show one machine",
        &[(
            "workers/tests/watcher/sources.rs",
            "a_machine_that_both_apis_show_counts_once_and_for_the_api_that_speaks_for_it",
        )],
    ),
    (
        77,
        "the entry of a BYOH host goes, and the host is dead",
        &[
            (
                "workflows/tests/own_hosts.rs",
                "a_dead_host_is_forgotten_by_force_and_the_debt_is_written_down",
            ),
            (
                "tests/real/plain.rs",
                "hosts_of_ones_own_come_and_go_and_cluster_api_is_found_when_it_comes",
            ),
        ],
    ),
    (
        78,
        "an entry for a BYOH host is bad, or there twice",
        &[
            (
                "workers/src/watcher/hosts/tests.rs",
                "entries_become_hosts_and_one_bad_entry_harms_no_other",
            ),
            (
                "workers/src/watcher/hosts/tests.rs",
                "two_entries_for_one_host_are_refused_and_the_older_one_serves",
            ),
        ],
    ),
    (
        79,
        "an API of machines is not served for a while",
        &[(
            "workers/tests/watcher/sources.rs",
            "a_kind_that_is_not_served_for_a_while_ends_no_run",
        )],
    ),
    (
        80,
        "a Node is deleted and registers again, and its Machine's nodeRef keeps the old UID",
        &[
            (
                "workers/tests/watcher.rs",
                "a_node_that_registers_again_is_published_though_its_node_ref_keeps_the_old_uid",
            ),
            (
                "workers/src/kubernetes/guard_tests.rs",
                "a_node_is_its_machines_by_uid_or_else_by_name_and_provider_id",
            ),
        ],
    ),
    (
        81,
        "a Node comes, or becomes Ready, after its deadline",
        &[(
            "workflows/tests/machine_stories/bring_up.rs",
            "a_node_that_comes_after_its_deadline_is_brought_up",
        )],
    ),
    (
        82,
        "the API server is away for hours in the middle of a change",
        &[(
            "workflows/tests/machine_stories/bring_up.rs",
            "an_api_server_that_is_away_for_hours_fails_no_machine",
        )],
    ),
    (
        83,
        "a Machine of Cluster API, its set or its cluster is paused",
        &[(
            "workers/tests/kubernetes/guard.rs",
            "nothing_is_taken_of_a_paused_machine_set_or_cluster",
        )],
    ),
    (
        84,
        "two dormers run for one cluster, in two namespaces",
        &[(
            "workers/tests/kubernetes/guard.rs",
            "a_machine_of_another_dormer_is_left_alone",
        )],
    ),
    (
        85,
        "somebody's hook stands before the drain of a Machine",
        &[(
            "workers/tests/kubernetes/guard.rs",
            "a_hook_before_the_drain_lets_the_machine_controller_drain",
        )],
    ),
    (
        86,
        "pods are labelled for Cluster API's drains: skip, wait-completed",
        &[(
            "workers/tests/kubernetes/guard.rs",
            "labels_of_pods_for_cluster_apis_drains_count_on_its_machines",
        )],
    ),
    (
        87,
        "etcd is restored to before a Machine's deletion",
        &[
            (
                "tests/real/restored.rs",
                "an_etcd_that_was_restored_to_an_earlier_revision_is_believed",
            ),
            (
                "workflows/tests/machine_reopened.rs",
                "a_machine_that_an_etcd_restored_brings_back_is_adopted_again",
            ),
        ],
    ),
    (
        88,
        "a person removes the wrong machine from dormer",
        &[(
            "workflows/tests/machine_reopened.rs",
            "a_person_who_removed_the_wrong_one_takes_it_back_by_a_reset",
        )],
    ),
    (
        89,
        "a worker is suspended with a tear-down or a reboot, and wakes after the lease has ended",
        &[
            (
                "workers/tests/kubernetes/guard.rs",
                "a_host_is_torn_down_and_rebooted_under_its_own_lease_alone",
            ),
            (
                "src/lab/bench/fleet/chaos.rs",
                "what_was_found_once_stays_mended",
            ),
        ],
    ),
    (
        95,
        "a repair is granted within the limit, and its host is dead",
        &[
            (
                "workflows/tests/machine_stories/repairs.rs",
                "a_repair_within_the_limit_of_a_dead_host_halts_nobody",
            ),
            (
                "workflows/tests/machine_stories/repairs.rs",
                "a_machine_that_was_given_up_and_has_no_node_is_replaced",
            ),
        ],
    ),
    (
        96,
        "a person takes a Machine out of its MachineSet by its labels",
        &[
            (
                "workers/src/watcher/messages/tests.rs",
                "a_machine_that_its_set_does_not_select_has_no_owner",
            ),
            (
                "workers/tests/kubernetes/guard.rs",
                "a_machine_that_its_set_does_not_keep_is_not_deleted",
            ),
        ],
    ),
    (
        97,
        "the Node of a BYOH host is deleted in the middle of a drain",
        &[(
            "workflows/tests/own_hosts.rs",
            "one_whose_node_is_deleted_in_mid_drain_goes_on",
        )],
    ),
    (
        98,
        "the cluster autoscaler takes back a replacement whose Node comes too late",
        &[(
            ROLLOUT,
            "a_replacement_that_the_autoscaler_takes_back_ends_no_slot",
        )],
    ),
    (
        99,
        "a Node goes and the pool is no more paused while dormer is off",
        &[(
            "workers/src/watcher/messages/tests.rs",
            "settings_that_allow_grants_come_after_what_machines_learn_of_a_full_list",
        )],
    ),
    (
        100,
        "a person changes the template of a MachineSet",
        &[
            (
                "src/lab/demo/scenarios/scaling.rs",
                "machines_of_an_earlier_template_are_found_until_others_are_made_from_the_new_one",
            ),
            (
                "workers/src/watcher/messages/tests.rs",
                "a_changed_template_reaches_the_runs_of_its_machines_and_no_other",
            ),
        ],
    ),
    (
        101,
        "a person rolls back while pods hold a drain up",
        &[
            (
                "workflows/tests/meanwhile.rs",
                "a_rollback_to_what_it_carries_undoes_its_drain",
            ),
            (
                "workflows/tests/meanwhile.rs",
                "a_drain_goes_on_to_the_version_that_is_desired_when_it_ends",
            ),
        ],
    ),
    (
        102,
        "a person replaces the SSH key of all hosts, some of which are away",
        &[
            (
                "src/ssh_key/tests.rs",
                "fifty_hosts_get_a_new_key_and_two_that_are_away_are_named_and_follow",
            ),
            (
                "src/ssh_key/tests.rs",
                "a_power_cut_at_each_point_loses_no_host_and_the_same_command_goes_on",
            ),
            (
                "src/ssh_key/tests.rs",
                "of_two_who_rotate_at_once_one_is_refused_and_leaves_no_key_on_a_host",
            ),
            (
                "tests/real/whole/ssh_key.rs",
                "the_key_is_rotated_on_a_real_api_server_and_of_two_people_one_is_refused",
            ),
            (
                "workers/tests/sshd/rotation.rs",
                "a_key_is_added_beside_the_old_one_and_the_old_one_is_taken_away_in_place",
            ),
        ],
    ),
    (
        103,
        "a person ends a rollback, and its order comes late",
        &[
            (
                "workflows/tests/rollout_stories.rs",
                "a_person_ends_a_rollback_without_a_change_of_the_spec",
            ),
            (
                "workers/tests/kubernetes/rollback.rs",
                "a_rollback_ends_at_a_persons_request_and_an_earlier_order_brings_it_not_back",
            ),
        ],
    ),
    (
        104,
        "a MachineSet is one of vSphere, and another one of Azure",
        &[(
            "src/lab/bench/fleet/scenarios/platforms.rs",
            "a_vsphere_machine_set_and_an_azure_one_come_up_and_their_machines_are_replaced_by_an_upgrade",
        )],
    ),
    (
        105,
        "the Windows Machine Config Operator comes back in the middle of a move, after an upgrade or a new SSH key",
        &[
            (
                "src/ssh_key/wmco_tests.rs",
                "a_wmco_that_comes_back_after_a_rotation_deletes_nothing_and_configures_nothing",
            ),
            (
                "src/ssh_key/wmco_tests.rs",
                "no_key_is_rotated_beside_a_wmco_that_runs",
            ),
            (
                "src/lab/bench/fleet/scenarios/wmco.rs",
                "a_wmco_that_comes_back_leaves_the_nodes_that_dormer_upgraded",
            ),
        ],
    ),
    (
        106,
        "BYOH hosts, machines of Cluster API and of the Machine API are in one queue, also without OpenShift's kinds",
        &[
            (
                "src/lab/bench/fleet/scenarios/mixed.rs",
                "on_plain_kubernetes_own_hosts_and_machines_of_cluster_api_come_up_are_upgraded_and_go",
            ),
            (
                "src/lab/bench/fleet/scenarios/mixed.rs",
                "on_openshift_two_machine_sets_own_hosts_and_a_set_of_cluster_api_are_one_queue",
            ),
            (
                "tests/real/whole/plain.rs",
                "own_hosts_and_machines_of_cluster_api_come_up_are_upgraded_and_go_without_openshift",
            ),
            (
                "tests/real/whole/kinds.rs",
                "two_machine_sets_own_hosts_and_a_set_of_cluster_api_are_one_queue",
            ),
        ],
    ),
    (
        107,
        "hosts reach neither the internet nor a registry, from their first boot on",
        &[
            (
                "src/lab/bench/fleet/scenarios/disconnected.rs",
                "hosts_without_internet_come_up_serve_pods_and_are_replaced_by_an_upgrade",
            ),
            (
                "src/lab/bench/fleet/scenarios/disconnected.rs",
                "without_the_pause_image_a_pod_on_such_a_host_names_it",
            ),
            (
                "src/lab/bench/fleet/scenarios/disconnected.rs",
                "an_image_without_sshd_on_such_a_host_is_named",
            ),
        ],
    ),
];
