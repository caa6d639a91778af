/** The turns of all jobs that have ended, as a `StoredTurn` each. */
export const TURNS_OF_JOBS = `
  SELECT s.session_id AS session, t.instance, t.created_at::float8 AS "createdAt", t.ended_at::float8 AS "endedAt"
  FROM bridge.turns t JOIN bridge.sessions s ON s.key = t.session_key JOIN bridge.jobs j ON j.session_id = s.session_id
  WHERE j.completed_at IS NOT NULL`;
