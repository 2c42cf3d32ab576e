// Package queue is a priority queue of tasks on PostgreSQL.
//
// A task has a type, a priority, a due time, and a tolerance: how long it may wait beyond its time
// without harm. Tasks of the greatest priority go first. Among them, those whose tolerance ends
// first go first. One worker at a time holds a task. A worker that does not report in time loses
// its tasks, and its later reports about them do not count.
//
// A [Kind] describes all tasks of a type, a [Store] stores tasks, and a [Worker] does them: see the
// example of the package. The tables belong to a ProcaaS schema, which procaas store migrate creates.
// Locks are always taken in this order:
//
//   - keys, by type and unique key, for every change of a task that has one.
//   - tasks, by id. Claims and promotions skip locked tasks.
//
// Only looks for lost workers lock rows of leases, and they lock nothing else.
//
// Rows are joined by "= any (array[x])", sets that are looked up once are passed as arrays, and
// locks are taken in the order of expressions. Package postgres explains why: a plan that was made
// while the tables were empty must work with a backlog.
package queue
