package language

import (
	"procaas/dsl/rules"
)

// shardRules documents the rules about shard maps.
func shardRules() []rules.Rule {
	const before, after = `shard-maps:
  - id: mail
    key: user
`, `shard-maps:
  - id: mail
    key: user
    tables: [{table: messages}]
    shards: [{id: s1, hosts: [{address: 127.0.0.1:5432}]}]
`
	return []rules.Rule{{
		Code:  rules.ShardMap,
		Title: "where the parts of a keyspace begin",
		Why: "Each slot, and each range of keys, begins on exactly one shard. With none, its keys would have no home, and " +
			"with two, two.",
		Before: before + `    strategy: slots
    slots: 8
    shards:
      - {id: s1, slots: 0-3, hosts: [{address: 127.0.0.1:5432}]}
      - {id: s2, slots: 5-7, hosts: [{address: 127.0.0.1:5433}]}
`,
		After: before + `    strategy: slots
    slots: 8
    shards:
      - {id: s1, slots: 0-3, hosts: [{address: 127.0.0.1:5432}]}
      - {id: s2, slots: 4-7, hosts: [{address: 127.0.0.1:5433}]}
`,
	}, {
		Code:  rules.ShardKeys,
		Title: "columns of a key",
		Why: "The columns of a key hold its parts, in their order. A column without a part would never be compared with " +
			"anything.",
		Before: before + `    tables: [{table: messages, key: [user, folder]}]
    shards: [{id: s1, hosts: [{address: 127.0.0.1:5432}]}]
`,
		After: after,
	}, {
		Code:  rules.ShardHosts,
		Title: "hosts of a shard",
		Why:   "A shard is a cluster of its own. If two shards had one host, the rows of one would be taken for the other's.",
		Before: before + `    shards:
      - {id: s1, hosts: [{address: 127.0.0.1:5432}]}
      - {id: s2, hosts: [{address: 127.0.0.1}]}
`,
		After: before + `    shards:
      - {id: s1, hosts: [{address: 127.0.0.1:5432}]}
      - {id: s2, hosts: [{address: 127.0.0.1:5433}]}
`,
	}, {
		Code:  rules.ShardRules,
		Title: "rules of registration",
		Why:   "A rule without a shard, or with one that does not exist, would leave new keys without a home.",
		Before: after + `    registration:
      rules: [{when: !$ event.payload.country == 'ru', class: warm}]
`,
		After: after + `    registration:
      rules: [{when: !$ event.payload.country == 'ru', class: hot}]
`,
	}}
}
