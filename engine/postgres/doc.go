// Package postgres keeps runs in PostgreSQL: the store of production.
package postgres
