import { expect, it } from 'vitest';
import { createFailures } from './failures.ts';

it('an address is blocked from its last allowed failure to the end of its minute, and then begins anew', () => {
  const failures = createFailures(3);
  expect([failures.note('a', 0), failures.note('a', 1_000), failures.blockedFor('a', 2_000)]).toEqual([
    false,
    false,
    undefined,
  ]);
  expect([failures.note('a', 2_000), failures.blockedFor('a', 2_000), failures.blockedFor('a', 59_999)]).toEqual([
    true,
    58,
    1,
  ]);
  expect([failures.note('a', 3_000), failures.blockedFor('b', 3_000)]).toEqual([false, undefined]);
  expect([failures.blockedFor('a', 60_000), failures.note('a', 60_000), failures.blockedFor('a', 60_000)]).toEqual([
    undefined,
    false,
    undefined,
  ]);
});

it('an address that was never blocked begins anew, too, when its minute is over', () => {
  const failures = createFailures(2);
  for (const at of [0, 60_000, 60_001]) failures.note('a', at);
  expect(failures.blockedFor('a', 60_002)).toBe(60);
});

it('a failure that was none is taken back, once and never below none', () => {
  const failures = createFailures(2);
  failures.note('a', 0);
  failures.note('a', 0);
  expect(failures.blockedFor('a', 1)).toBe(60);
  failures.takeBack('a');
  expect(failures.blockedFor('a', 1)).toBeUndefined();
  for (let i = 0; i < 3; i++) failures.takeBack('a');
  failures.takeBack('b');
  expect([failures.note('a', 2), failures.note('a', 2), failures.blockedFor('b', 2)]).toEqual([false, true, undefined]);
});

it('all addresses of an IPv6 network are one, as an IPv4 address in IPv6 notation is', () => {
  const failures = createFailures(1);
  failures.note('2001:db8:1:2:3:4:5:6', 0);
  failures.note('::ffff:10.0.0.1', 0);
  for (const address of ['2001:db8:1:2::1', '2001:DB8:1:2:ffff::', '2001:0db8:0001:0002:0:0:0:9', '10.0.0.1'])
    expect([address, failures.blockedFor(address, 1)]).toEqual([address, 60]);
  for (const address of ['2001:db8:1:3::1', '2001:db8::1:2', '::1', '10.0.0.2'])
    expect([address, failures.blockedFor(address, 1)]).toEqual([address, undefined]);
  failures.takeBack('2001:db8:1:2::7');
  expect(failures.blockedFor('2001:db8:1:2::1', 1)).toBeUndefined();
  failures.note('1:2::4:5:6:7:8', 0);
  expect(failures.blockedFor('1:2:0:4::', 1)).toBe(60);
});

it('remembers a bounded number of addresses', () => {
  const failures = createFailures(1);
  const addresses = Array.from({ length: 100_001 }, (_, i) => `a${i}`);
  for (const address of addresses) failures.note(address, 0);
  expect(addresses.filter((address) => failures.blockedFor(address, 1) === undefined)).toEqual(['a0']);
});
