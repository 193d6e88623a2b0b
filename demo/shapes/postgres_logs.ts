import { weighted } from '../random.ts';
import { isoSeconds } from '../timestamps.ts';
import { platformEvent, selfHostedEvent, type Draft } from './draft.ts';

const drawSeverity = weighted({ LOG: 86, ERROR: 9, WARNING: 2, FATAL: 2, NOTICE: 0.7, INFO: 0.2, DEBUG1: 0.1 });
/** message and SQLSTATE by severity */
const errors = [
  ['duplicate key value violates unique constraint \\"orders_pkey\\"', '23505'],
  ['relation \\"public.ordres\\" does not exist', '42P01'],
  ['permission denied for table profiles', '42501'],
  ['canceling statement due to statement timeout', '57014'],
  ['new row violates row-level security policy for table \\"messages\\"', '42501'],
  ['deadlock detected', '40P01'],
  ['invalid input syntax for type uuid: \\"undefined\\"', '22P02'],
] as const;
const users = [
  'authenticator',
  'postgres',
  'supabase_admin',
  'supabase_auth_admin',
  'supabase_storage_admin',
  'pgbouncer',
];
const tags = ['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'authentication', 'idle', 'BEGIN', 'COMMIT'];
const backends = [
  'client backend',
  'client backend',
  'client backend',
  'client backend',
  'autovacuum worker',
  'checkpointer',
  'parallel worker',
];

/** One line of a database's log, about 713 bytes. */
export function postgresLog(draft: Draft): string {
  const { random, project, micros } = draft;
  const severity = draft.incident === 'outage' && random.chance(0.6) ? 'FATAL' : drawSeverity(random);
  const user = random.pick(users);
  const [error, state] = random.pick(errors);
  const slowMs = random.logNormal(draft.incident === 'slow' ? 400 : 40, 1.2).toFixed(3);
  const connection = `10.${random.below(256)}.${random.below(256)}.${1 + random.below(254)}:${32_768 + random.below(28_000)}`;
  const message =
    severity === 'ERROR'
      ? error
      : severity === 'FATAL'
        ? 'remaining connection slots are reserved for non-replication superuser connections'
        : severity === 'LOG'
          ? random.chance(0.5)
            ? `connection authorized: user=${user} database=postgres application_name=postgrest`
            : `duration: ${slowMs} ms  statement: select * from orders where id = ${random.below(1_000_000)}`
          : severity === 'WARNING'
            ? 'there is already a transaction in progress'
            : 'extension \\"uuid-ossp\\" already exists, skipping';
  const time = isoSeconds(micros);
  if (draft.selfHosted)
    return selfHostedEvent(
      draft,
      'supabase-db',
      `"${connection.split(':')[0]} ${time.replace('T', ' ')} UTC ${user}@postgres ${severity}:  ${message}"`,
      `{"host":"db-${project.ref}","parsed":{"error_severity":"${severity}","timestamp":"${time}Z"}}`,
      true,
    );
  const millis = String(Math.floor(micros / 1000) % 1000).padStart(3, '0');
  const started = micros - random.below(3_600_000_000);
  const pid = 1000 + random.below(60_000);
  return platformEvent(
    draft,
    `"${message}"`,
    `{"host":"db-${project.ref}","parsed":{"error_severity":"${severity}","backend_type":"${random.pick(backends)}","command_tag":"${random.pick(tags)}","connection_from":"${connection}","context":null,"database_name":"postgres","leader_pid":null,` +
      `"process_id":${pid},"query_id":${random.uint32() * 1_048_576 + random.below(1_048_576)},"session_id":"${Math.floor(started / 1_000_000).toString(16)}.${pid.toString(16)}","session_line_num":${1 + random.below(40)},` +
      `"session_start_time":"${isoSeconds(started).replace('T', ' ')} UTC","sql_state_code":"${severity === 'ERROR' ? state : severity === 'FATAL' ? '53300' : '00000'}","timestamp":"${time.replace('T', ' ')}.${millis} UTC",` +
      `"transaction_id":${random.chance(0.4) ? random.below(4_000_000) : 0},"user_name":"${user}","virtual_transaction_id":"${random.below(200)}/${random.below(2_000_000)}"}}`,
    true,
  );
}
