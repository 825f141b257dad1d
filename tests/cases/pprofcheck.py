# SPDX-License-Identifier: Apache-2.0
# pprofcheck.py FILE... : stdlib-only check of pprof rules; prints faults, exit 1 if any
import sys,gzip
def fields(b):
    i=0
    def vi():
        nonlocal i; r=s=0
        while True:
            c=b[i]; i+=1; r|=(c&127)<<s; s+=7
            if c<128: return r
    while i<len(b):
        t=vi(); n,w=t>>3,t&7
        if w==0: yield n,vi()
        elif w==2:
            l=vi(); yield n,b[i:i+l]; i+=l
        elif w==1: yield n,b[i:i+8]; i+=8
        elif w==5: yield n,b[i:i+4]; i+=4
        else: raise ValueError(f"wire type {w}")
def rep(v):
    if isinstance(v,int): return [v]
    o=[];r=s=0
    for c in v:
        r|=(c&127)<<s; s+=7
        if c<128: o.append(r); r=s=0
    return o
def msg(b):
    d={}
    for n,v in fields(b): d.setdefault(n,[]).append(v)
    return d
def one(d,n,z=0): return d.get(n,[z])[-1]
def check(raw):
    e=[]; b=gzip.decompress(raw) if raw[:2]==b'\x1f\x8b' else raw
    p=msg(b); st=p.get(6,[]); S=len(st)
    if not st or st[0]!=b'': e.append('string_table[0] is not ""')
    for k,s in enumerate(st):
        try: s.decode()
        except UnicodeDecodeError: e.append(f'string {k} is not UTF-8: {s[:40]!r}')
    def sx(i,w):
        if not 0<=i<S: e.append(f'{w}: string index {i} of {S}')
    nt=len(p.get(1,[])); 
    if nt==0: e.append('no sample_type')
    for v in p.get(1,[])+p.get(11,[]):
        m=msg(v); sx(one(m,1),'value type'); sx(one(m,2),'unit')
        if one(m,1)==0 or one(m,2)==0: e.append('value type without name or unit')
    ids={}
    for name,f in (('mapping',3),('location',4),('function',5)):
        s=ids[name]={}
        for v in p.get(f,[]):
            m=msg(v); i=one(m,1)
            if i==0: e.append(f'{name} with id 0')
            if i in s: e.append(f'{name} id {i} twice')
            s[i]=m
    for i,m in ids['function'].items():
        for k in (2,3,4): sx(one(m,k),f'function {i}')
    r=[]
    for i,m in ids['mapping'].items():
        for k in (5,6): sx(one(m,k),f'mapping {i}')
        if one(m,2)>one(m,3): e.append(f'mapping {i}: start after limit')
        r.append((one(m,2),one(m,3),i))
    for i,m in ids['location'].items():
        g=one(m,2)
        if g and g not in ids['mapping']: e.append(f'location {i}: mapping {g} missing')
        a=one(m,3)
        if g in ids['mapping'] and a and one(ids['mapping'][g],3):
            q=ids['mapping'][g]
            if not one(q,2)<=a<one(q,3): e.append(f'location {i}: address {a:#x} outside mapping {g}')
        for l in m.get(4,[]):
            f=one(msg(l),1)
            if f not in ids['function']: e.append(f'location {i}: function {f} missing')
    for k,v in enumerate(p.get(2,[])):
        m=msg(v); L=[x for y in m.get(1,[]) for x in rep(y)]; V=[x for y in m.get(2,[]) for x in rep(y)]
        if len(V)!=nt: e.append(f'sample {k}: {len(V)} values for {nt} types')
        for x in V:
            if x>>63: e.append(f'sample {k}: negative value')
        for x in L:
            if x not in ids['location']: e.append(f'sample {k}: location {x} missing')
        for l in m.get(3,[]):
            q=msg(l); sx(one(q,1),f'sample {k} label'); sx(one(q,2),f'sample {k} label')
            if one(q,1)==0: e.append(f'sample {k}: label without key')
    for f,w in ((9,'time_nanos'),(10,'duration_nanos'),(12,'period')):
        if one(p,f)<=0 or one(p,f)>>63: e.append(f'{w} is {one(p,f)}')
    for f in (7,8,14): sx(one(p,f),f'field {f}')
    return e,len(p.get(2,[]))
bad=0
for fn in sys.argv[1:]:
    e,n=check(open(fn,'rb').read()); bad|=bool(e); print(fn,n,'samples',len(e),'faults'); [print('  ',x) for x in e[:20]]
sys.exit(bad)
