// Package queue is a priority queue of tasks on PostgreSQL.
//
// A task has a type, a priority, a time from when on it may start, and a tolerance:
// how long it may wait beyond that without harm. Those of the greatest priority go
// first, and among them those whose tolerance ends first. A task is held by one worker
// at a time. A worker that is not heard of in time loses its tasks, and nothing that it
// says of them later counts.
//
// A [Kind] says what all tasks of a type have in common, [Store] keeps the tasks, and a
// [Worker] does them: see the example of the package. The store's tables are those of a ProcaaS schema: procaas migrate
// makes them. Locks are always taken in this order:
//
//   - keys, by type and unique key: whoever changes a task that has one;
//   - tasks, by id. Who claims or promotes skips those that are locked.
//
// Rows are joined by "= any (array[x])", sets that are looked up once come as arrays, and
// locks are taken in the order of expressions, for the reason that package postgres tells:
// a plan made while the tables were empty must be one that bears a backlog.
package queue
